//! What a command prints, read as it comes and no further than it is of use.

use std::convert::Infallible;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;

use tokio::net::unix::pipe::{Receiver, pipe};

/// The end of a pipe from which a command's output is read.
pub(crate) struct Capture {
    /// Closed when there is more than is wanted, which ends most commands.
    pipe: Option<Receiver>,
    bytes: Vec<u8>,
    bytes_max: usize,
    failure: Option<io::Error>,
}

impl Capture {
    /// A pipe, and the end to which the command writes.
    ///
    /// # Errors
    /// When the operating system has none.
    pub(crate) fn new(bytes_max: usize) -> io::Result<(Self, OwnedFd)> {
        let (sender, receiver) = pipe()?;
        let capture = Self { pipe: Some(receiver), bytes: Vec::new(), bytes_max, failure: None };
        Ok((capture, sender.into_blocking_fd()?))
    }

    /// Reads what comes, for ever.
    ///
    /// # Cancel safety
    /// Safe: what was read stays.
    pub(crate) async fn fill(&mut self) -> Infallible {
        while let Some(pipe) = &self.pipe {
            let read = match pipe.readable().await {
                Ok(()) => pipe.try_read_buf(&mut self.bytes),
                Err(error) => Err(error),
            };
            match read {
                Ok(0) => self.pipe = None,
                Ok(_) => self.close_when_full(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => {
                    self.pipe = None;
                    self.failure = Some(error);
                }
            }
        }
        std::future::pending().await
    }

    /// Everything, when nobody writes any more; nothing when it is longer than it may be.
    ///
    /// # Errors
    /// When it could not be read.
    pub(crate) fn finish(mut self) -> io::Result<Option<Vec<u8>>> {
        if let Some(error) = self.failure {
            return Err(error);
        }
        if let Some(pipe) = self.pipe.take() {
            // The runtime may not know yet what is there, and others may have the pipe open still.
            let rest = File::from(pipe.into_nonblocking_fd()?);
            let room = (self.bytes_max + 1).saturating_sub(self.bytes.len()) as u64;
            match rest.take(room).read_to_end(&mut self.bytes) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Some(self.bytes).filter(|bytes| bytes.len() <= self.bytes_max))
    }

    fn close_when_full(&mut self) {
        if self.bytes.len() > self.bytes_max {
            self.pipe = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    /// Lets what is written be read, while it is written or only afterwards.
    fn capture(bytes_max: usize, text: &[u8], is_filled: bool) -> (Option<Vec<u8>>, File) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (mut capture, end) = Capture::new(bytes_max).unwrap();
            let mut end = File::from(end);
            end.write_all(text).unwrap();
            if is_filled {
                let moment = std::time::Duration::from_millis(20);
                tokio::time::timeout(moment, capture.fill()).await.unwrap_err();
                let _ = end.write_all(b"!");
            }
            // The other end is open all the time, as in the guard.
            (capture.finish().unwrap(), end)
        })
    }

    #[test]
    fn everything_is_read_though_nobody_closed_the_pipe() {
        assert_eq!(capture(5, b"", false).0.unwrap(), b"");
        assert_eq!(capture(5, b"seven", false).0.unwrap(), b"seven");
        assert_eq!(capture(5, b"four", true).0.unwrap(), b"four!");
    }

    #[test]
    fn what_is_too_long_is_not_kept_and_closes_the_pipe() {
        assert_eq!(capture(4, b"seven", false).0, None);
        assert_eq!(capture(4, b"four", true).0, None);
        let (kept, mut end) = capture(4, b"seven", true);
        assert_eq!(kept, None);
        assert_eq!(end.write_all(b"!").unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}
