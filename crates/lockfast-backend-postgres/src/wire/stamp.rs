//! The proof that an answer is ours. A session of our own answers what we ask, one after the other.
//! A pooler gives its sessions to many, and may give somebody the answer to another one's statement:
//! PgBouncer before 1.22.1 does when a client that has sent several statements at once disconnects
//! after the first answer (B56). So each statement through a pooler carries a number that nobody
//! else knows, and every row of the answer has to bring it back. An error brings nothing back, so it
//! counts when it comes again.

use tokio_postgres::types::Type;
use tokio_postgres::{Error, Row};

use super::{Param, Session};
use crate::failure::{self, Failure};

/// What comes of a statement with a number.
enum Stamped {
    Ours(Vec<Row>),
    Foreign,
}

impl Session {
    /// Runs a statement in one round trip, without leaving anything in the server's session. Somebody
    /// has to drive the connection meanwhile.
    pub(crate) async fn query(
        &self,
        statement: &str,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, Failure> {
        let of_driver = |error: &Error| failure::of_driver(&self.endpoint, error);
        if self.is_direct {
            return self.client.query_typed(statement, params).await.map_err(|e| of_driver(&e));
        }
        match self.query_stamped(statement, params).await {
            Ok(Stamped::Ours(rows)) => Ok(rows),
            Ok(Stamped::Foreign) => {
                let failure = failure::of_mixture(&self.endpoint);
                tracing::warn!("{}", failure.message());
                Err(failure)
            }
            Err(error) if error.as_db_error().is_some() => {
                Err(failure::without_proof(of_driver(&error)))
            }
            Err(error) => Err(of_driver(&error)),
        }
    }

    async fn query_stamped(&self, statement: &str, params: &[Param<'_>]) -> Result<Stamped, Error> {
        let number = self.stamps.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let mut all: Vec<Param<'_>> = params.to_vec();
        all.push((&number, Type::INT8));
        let rows = self.client.query_typed(&stamp(statement, all.len()), &all).await?;
        if rows.is_empty() || rows.iter().any(|row| number_of(row) != Some(number)) {
            return Ok(Stamped::Foreign);
        }
        Ok(Stamped::Ours(rows.into_iter().filter(is_given).collect()))
    }
}

/// The statement with two columns more: whether there is a row, which is so for all but the only
/// row of an answer without any, and the number, which is the parameter at that place.
fn stamp(statement: &str, place: usize) -> String {
    format!(
        "SELECT answer.*, own.number FROM (SELECT ${place}::bigint) own (number) LEFT JOIN \
         (SELECT given.*, true FROM ({statement}) given) answer ON true"
    )
}

fn number_of(row: &Row) -> Option<i64> {
    row.try_get(row.len().checked_sub(1)?).ok()
}

fn is_given(row: &Row) -> bool {
    let at = row.len().checked_sub(2);
    at.is_some_and(|at| row.try_get::<_, Option<bool>>(at).is_ok_and(|given| given == Some(true)))
}
