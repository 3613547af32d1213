//! A session with a server that is independent of what is tested: a few requests, one at a time.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Nothing takes longer unless it hangs.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(30);

/// What servers answer when they do not do what they are asked to.
pub mod codes {
    /// There is no such node.
    pub const NO_NODE: i32 = -101;
    /// The access list does not allow it.
    pub const NO_AUTH: i32 = -102;
    /// There is such a node already.
    pub const NODE_EXISTS: i32 = -110;
    /// It has children.
    pub const NOT_EMPTY: i32 = -111;
}

/// What is to become of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It stays.
    Persistent = 0,
    /// It goes with the session.
    Ephemeral = 1,
    /// It stays, and its name ends with a number.
    PersistentSequential = 2,
    /// It goes with the session, and its name ends with a number.
    EphemeralSequential = 3,
}

/// Who may do what with a node: rights as letters of `cdrwa`, and whom they are given to.
#[derive(Clone, Copy, Debug)]
pub struct Access<'a> {
    /// Of `cdrwa`: create children, delete children, read, write, administer.
    pub rights: &'a str,
    /// `world`, `auth`, `digest` or another.
    pub scheme: &'a str,
    /// Who, as the scheme has it.
    pub id: &'a str,
}

/// Everybody may do everything.
const OPEN: Access<'static> = Access { rights: "cdrwa", scheme: "world", id: "anyone" };

/// What a server tells of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// The transaction that created it.
    pub czxid: i64,
    /// The session with which it goes, or 0.
    pub owner: i64,
    /// How many children it has.
    pub children: i32,
}

/// A session, which ends when it is dropped.
#[derive(Debug)]
pub struct Session {
    stream: TcpStream,
    id: i64,
    timeout: Duration,
    next: i32,
}

impl Session {
    /// Opens one.
    ///
    /// # Panics
    /// When the server does not grant it.
    pub fn open(address: SocketAddr, timeout: Duration) -> Self {
        Self::try_open(address, timeout).unwrap_or_else(|error| panic!("no session: {error}"))
    }

    /// Opens one, which may fail.
    ///
    /// # Errors
    /// What the network says.
    pub fn try_open(address: SocketAddr, timeout: Duration) -> std::io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, ANSWER_TIME_MAX)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_TIME_MAX))?;
        let mut session = Self { stream, id: 0, timeout, next: 0 };
        let mut hello = Writer::default();
        hello.int(0).long(0).int(i32::try_from(timeout.as_millis()).unwrap()).long(0);
        hello.bytes(&[0; 16]).flag(false);
        session.send(&hello)?;
        let answer = session.receive()?;
        let mut answer = Reader(&answer);
        answer.int();
        session.timeout = Duration::from_millis(u64::try_from(answer.int()).unwrap());
        session.id = answer.long();
        Ok(session)
    }

    /// Its number.
    pub fn id(&self) -> i64 {
        self.id
    }

    /// How long the server keeps it without hearing anything.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Says who one is, as `user:password`.
    ///
    /// # Panics
    /// When the server does not like it.
    pub fn introduce(&mut self, login: &str) {
        let mut body = Writer::default();
        body.int(0).text("digest").bytes(login.as_bytes());
        self.ask_as(-4, 100, body).unwrap_or_else(|code| panic!("not let in: {code}"));
    }

    /// Creates a node that stays and that everybody may use.
    ///
    /// # Panics
    /// When the server does not.
    pub fn create(&mut self, path: &str, data: &[u8]) -> String {
        let made = self.try_create(path, data, Kind::Persistent, &[OPEN]);
        made.unwrap_or_else(|code| panic!("{path} cannot be created: {code}"))
    }

    /// Creates a node with an access list; an empty one lets everybody do everything.
    ///
    /// # Errors
    /// The server's code.
    pub fn try_create(
        &mut self,
        path: &str,
        data: &[u8],
        kind: Kind,
        access: &[Access<'_>],
    ) -> Result<String, i32> {
        let mut body = Writer::default();
        body.text(path).bytes(data).access(access).int(kind as i32);
        let answer = self.ask(1, body)?;
        Ok(Reader(&answer).text())
    }

    /// Deletes a node.
    ///
    /// # Errors
    /// The server's code.
    pub fn try_delete(&mut self, path: &str) -> Result<(), i32> {
        let mut body = Writer::default();
        body.text(path).int(-1);
        self.ask(2, body).map(|_| ())
    }

    /// Deletes a node with all that is in it.
    ///
    /// # Panics
    /// When the server does not.
    pub fn delete_all(&mut self, path: &str) {
        for child in self.children(path) {
            self.delete_all(&format!("{path}/{child}"));
        }
        match self.try_delete(path) {
            Ok(()) | Err(codes::NO_NODE) => {}
            Err(code) => panic!("{path} cannot be deleted: {code}"),
        }
    }

    /// What the server tells of a node, if it is there.
    ///
    /// # Panics
    /// When the server does not tell.
    pub fn stat(&mut self, path: &str) -> Option<Stat> {
        let mut body = Writer::default();
        body.text(path).flag(false);
        match self.ask(3, body) {
            Ok(answer) => Some(Reader(&answer).stat()),
            Err(codes::NO_NODE) => None,
            Err(code) => panic!("nothing is told of {path}: {code}"),
        }
    }

    /// What a node holds.
    ///
    /// # Errors
    /// The server's code.
    pub fn try_read(&mut self, path: &str) -> Result<Vec<u8>, i32> {
        let mut body = Writer::default();
        body.text(path).flag(false);
        Ok(Reader(&self.ask(4, body)?).bytes())
    }

    /// Writes to a node.
    ///
    /// # Errors
    /// The server's code.
    pub fn try_write(&mut self, path: &str, data: &[u8]) -> Result<(), i32> {
        let mut body = Writer::default();
        body.text(path).bytes(data).int(-1);
        self.ask(5, body).map(|_| ())
    }

    /// The names of a node's children in alphabetical order; none if it is not there.
    ///
    /// # Panics
    /// When the server does not tell.
    pub fn children(&mut self, path: &str) -> Vec<String> {
        let mut body = Writer::default();
        body.text(path).flag(false);
        let answer = match self.ask(8, body) {
            Ok(answer) => answer,
            Err(codes::NO_NODE) => return Vec::new(),
            Err(code) => panic!("the children of {path} are not told: {code}"),
        };
        let mut answer = Reader(&answer);
        let count = answer.int();
        let mut names: Vec<String> = (0..count).map(|_| answer.text()).collect();
        names.sort();
        names
    }

    /// Gives a node another access list.
    ///
    /// # Errors
    /// The server's code.
    pub fn try_set_access(&mut self, path: &str, access: &[Access<'_>]) -> Result<(), i32> {
        let mut body = Writer::default();
        body.text(path).access(access).int(-1);
        self.ask(7, body).map(|_| ())
    }

    /// Has the server wait until it knows all that the leader does.
    ///
    /// # Panics
    /// When the server does not.
    pub fn sync(&mut self) {
        let mut body = Writer::default();
        body.text("/");
        self.ask(9, body).unwrap_or_else(|code| panic!("not in sync: {code}"));
    }

    fn ask(&mut self, kind: i32, body: Writer) -> Result<Vec<u8>, i32> {
        self.next += 1;
        self.ask_as(self.next, kind, body)
    }

    fn ask_as(&mut self, number: i32, kind: i32, body: Writer) -> Result<Vec<u8>, i32> {
        let mut request = Writer::default();
        request.int(number).int(kind).0.extend(body.0);
        self.send(&request).unwrap();
        loop {
            let answer = self.receive().unwrap();
            let mut head = Reader(&answer);
            let (answered, _, code) = (head.int(), head.long(), head.int());
            if answered == number {
                return if code == 0 { Ok(head.0.to_vec()) } else { Err(code) };
            }
        }
    }

    fn send(&mut self, message: &Writer) -> std::io::Result<()> {
        let mut framed = Writer::default();
        framed.bytes(&message.0);
        self.stream.write_all(&framed.0)
    }

    fn receive(&mut self) -> std::io::Result<Vec<u8>> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length)?;
        let mut answer = vec![0; usize::try_from(i32::from_be_bytes(length)).unwrap()];
        self.stream.read_exact(&mut answer)?;
        Ok(answer)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // A server that is gone has closed it already.
        let mut end = Writer::default();
        end.int(self.next + 1).int(-11);
        if self.send(&end).is_ok() {
            let _ = self.receive();
        }
    }
}

/// What is sent.
#[derive(Default)]
struct Writer(Vec<u8>);

impl Writer {
    fn int(&mut self, value: i32) -> &mut Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    fn long(&mut self, value: i64) -> &mut Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    fn flag(&mut self, value: bool) -> &mut Self {
        self.0.push(u8::from(value));
        self
    }

    fn bytes(&mut self, value: &[u8]) -> &mut Self {
        self.int(i32::try_from(value.len()).unwrap());
        self.0.extend(value);
        self
    }

    fn text(&mut self, value: &str) -> &mut Self {
        self.bytes(value.as_bytes())
    }

    fn access(&mut self, list: &[Access<'_>]) -> &mut Self {
        let list = if list.is_empty() { &[OPEN] } else { list };
        self.int(i32::try_from(list.len()).unwrap());
        for access in list {
            let right = |letter: char| match letter {
                'r' => 1,
                'w' => 2,
                'c' => 4,
                'd' => 8,
                'a' => 16,
                other => panic!("{other:?} is no right"),
            };
            self.int(access.rights.chars().map(right).sum());
            self.text(access.scheme).text(access.id);
        }
        self
    }
}

/// What is received.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take(&mut self, count: usize) -> &[u8] {
        let (taken, rest) = self.0.split_at(count);
        self.0 = rest;
        taken
    }

    fn int(&mut self) -> i32 {
        i32::from_be_bytes(self.take(4).try_into().unwrap())
    }

    fn long(&mut self) -> i64 {
        i64::from_be_bytes(self.take(8).try_into().unwrap())
    }

    fn bytes(&mut self) -> Vec<u8> {
        // Nothing at all has the length −1.
        let length = usize::try_from(self.int()).unwrap_or(0);
        self.take(length).to_vec()
    }

    fn text(&mut self) -> String {
        String::from_utf8(self.bytes()).unwrap()
    }

    fn stat(&mut self) -> Stat {
        let czxid = self.long();
        self.take(8 * 3 + 4 * 3);
        let owner = self.long();
        self.take(4);
        Stat { czxid, owner, children: self.int() }
    }
}
