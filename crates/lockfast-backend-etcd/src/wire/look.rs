//! What only a diagnosis asks a member for, with its messages.

use prost::{Enumeration, Message};

use super::connection::Connection;
use super::message::{Header, RangeRequest, RangeResponse};
use crate::failure::Failure;

/// What is asked about alarms is which there are, which is the default of every field.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct AlarmRequest {}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct AlarmResponse {
    #[prost(message, repeated, tag = "2")]
    pub(crate) alarms: Vec<AlarmMember>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct AlarmMember {
    #[prost(uint64, tag = "1")]
    pub(crate) member_id: u64,
    #[prost(enumeration = "Alarm", tag = "2")]
    pub(crate) alarm: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Enumeration)]
#[repr(i32)]
pub(crate) enum Alarm {
    None = 0,
    NoSpace = 1,
    Corrupt = 2,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct MemberListRequest {
    #[prost(bool, tag = "1")]
    pub(crate) linearizable: bool,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct MemberListResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<Header>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) members: Vec<Member>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Member {
    #[prost(string, tag = "2")]
    pub(crate) name: String,
    #[prost(string, repeated, tag = "4")]
    pub(crate) client_urls: Vec<String>,
    #[prost(bool, tag = "5")]
    pub(crate) is_learner: bool,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct UserGetRequest {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct UserGetResponse {
    #[prost(string, repeated, tag = "2")]
    pub(crate) roles: Vec<String>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct RoleGetRequest {
    #[prost(string, tag = "1")]
    pub(crate) role: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct RoleGetResponse {
    #[prost(message, repeated, tag = "2")]
    pub(crate) permissions: Vec<Permission>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Permission {
    #[prost(enumeration = "PermissionType", tag = "1")]
    pub(crate) kind: i32,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "3")]
    pub(crate) range_end: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Enumeration)]
#[repr(i32)]
pub(crate) enum PermissionType {
    Read = 0,
    Write = 1,
    ReadWrite = 2,
}

impl Connection {
    /// The alarms of all members.
    pub(crate) async fn alarms(&self) -> Result<Vec<AlarmMember>, Failure> {
        let said: AlarmResponse =
            self.call("/etcdserverpb.Maintenance/Alarm", AlarmRequest {}).await?;
        Ok(said.alarms)
    }

    /// All members of the cluster.
    pub(crate) async fn members(&self) -> Result<Vec<Member>, Failure> {
        Ok(self.list_members().await?.members)
    }

    /// The number of the cluster.
    pub(crate) async fn cluster(&self) -> Result<u64, Failure> {
        Ok(self.list_members().await?.header.map_or(0, |header| header.cluster_id))
    }

    async fn list_members(&self) -> Result<MemberListResponse, Failure> {
        let request = MemberListRequest { linearizable: true };
        self.call("/etcdserverpb.Cluster/MemberList", request).await
    }

    /// The roles of a user.
    pub(crate) async fn roles_of(&self, user: &str) -> Result<Vec<String>, Failure> {
        let request = UserGetRequest { name: user.to_owned() };
        let said: UserGetResponse = self.call("/etcdserverpb.Auth/UserGet", request).await?;
        Ok(said.roles)
    }

    /// What a role may do.
    pub(crate) async fn permissions_of(&self, role: &str) -> Result<Vec<Permission>, Failure> {
        let request = RoleGetRequest { role: role.to_owned() };
        let said: RoleGetResponse = self.call("/etcdserverpb.Auth/RoleGet", request).await?;
        Ok(said.permissions)
    }

    /// Reads as somebody who does not say who he is.
    pub(crate) async fn range_as_nobody(
        &self,
        request: RangeRequest,
    ) -> Result<RangeResponse, Failure> {
        self.anonymous().range(request).await
    }
}

impl Permission {
    /// Whether keys may be read by it.
    pub(crate) fn may_read(&self) -> bool {
        matches!(self.kind(), PermissionType::Read | PermissionType::ReadWrite)
    }

    /// Whether keys may be written by it.
    pub(crate) fn may_write(&self) -> bool {
        matches!(self.kind(), PermissionType::Write | PermissionType::ReadWrite)
    }
}
