//! What stands in `locked_by`: `lockfast/<holder id>/<pid>/<host>/<program>/<text>` while we have the
//! row and after we have given it back, `lockfast/<holder id>!<reason>` after an operator took it away.
//! Whatever else stands there was written by another program.

use lockfast_core::{HolderId, Label};

use super::Field;

const MARK: &str = "lockfast/";
/// `lockfast/`, the id in hexadecimal, and what follows it.
pub const KEY_CHARS: usize = 42;

/// How the rows of a holder begin.
pub(super) fn key(holder: HolderId) -> String {
    format!("{MARK}{}/", holder.to_hex())
}

/// How the rows begin that were taken away from a holder.
pub(super) fn revoked_key(holder: HolderId) -> String {
    format!("{MARK}{}!", holder.to_hex())
}

/// The whole text of a holder.
pub(super) fn write(holder: HolderId, label: &Label, field: Field) -> String {
    let part = |text: &str| text.replace('/', "_");
    let (host, program) = (part(&label.host), part(&label.program));
    let text = label.text.as_deref().unwrap_or_default();
    field.fit(&format!("{}{}/{host}/{program}/{text}", key(holder), label.pid))
}

/// Whose it is, if it is one of ours.
pub(super) fn read(owner: &str) -> Option<Label> {
    let mut parts = owner.strip_prefix(MARK)?.splitn(5, '/');
    parts.next().filter(|id| HolderId::parse(id).is_ok())?;
    let pid = parts.next()?.parse().ok()?;
    let host = parts.next().unwrap_or_default().to_owned();
    let program = parts.next().unwrap_or_default().to_owned();
    let text = parts.next().filter(|text| !text.is_empty()).map(ToOwned::to_owned);
    Some(Label::new(program, host, pid).with_stored_text(text))
}

/// What takes the place of an owner from whom the row is taken away. It is another text in any case,
/// so that the owner neither prolongs nor gives back what it has not any more.
pub(super) fn revoke(owner: &str, reason: &str, field: Field) -> String {
    let id = owner.get(..KEY_CHARS - 1).filter(|_| read(owner).is_some());
    let reason: String = reason.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    field.fit(&match id {
        Some(id) => format!("{id}!{reason}"),
        None => format!("revoked: {reason}"),
    })
}

/// Why the row was taken away from this holder, if it was.
pub(super) fn revocation(owner: &str, holder: HolderId) -> Option<&str> {
    owner.strip_prefix(&revoked_key(holder))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockfast_core::ClientId;

    const FIELD: Field = Field { chars: 255, highest: char::MAX };

    fn holder() -> HolderId {
        HolderId::random(ClientId::random().unwrap()).unwrap()
    }

    #[test]
    fn an_owner_is_read_as_it_was_written() {
        let holder = holder();
        let label = Label::new("my/job".into(), "host".into(), 7);
        let text = write(holder, &label.clone().with_text("a/b").unwrap(), FIELD);
        assert!(text.starts_with(&key(holder)) && key(holder).len() == KEY_CHARS, "{text}");
        let read_back = read(&text).unwrap();
        assert_eq!(read_back.to_string(), "my_job (pid 7 on host) “a/b”");
        assert_eq!(read(&write(holder, &label, FIELD)).unwrap().text, None);
        for foreign in ["", "java-host", "lockfast/", "lockfast/xyz/1/h/p/", "revoked: x"] {
            assert!(read(foreign).is_none(), "{foreign}");
        }
    }

    #[test]
    fn the_column_has_room_for_it() {
        let long = |c: char| c.to_string().repeat(64);
        let label = Label::new(long('é'), long('h'), u32::MAX).with_text(&"🔒".repeat(32)).unwrap();
        let holder = holder();
        let text = write(holder, &label, Field { chars: 150, highest: '\u{7f}' });
        assert_eq!((text.chars().count(), text.is_ascii()), (150, true));
        assert!(text.starts_with(&key(holder)) && read(&text).is_some());
    }

    #[test]
    fn a_revocation_is_told_to_its_holder_alone() {
        let ours = holder();
        let owner = write(ours, &Label::new("p".into(), "h".into(), 7), FIELD);
        let revoked = revoke(&owner, "it\nhangs", FIELD);
        assert_eq!(revocation(&revoked, ours), Some("it hangs"));
        assert!(!revoked.starts_with(&key(ours)) && read(&revoked).is_none());
        assert_eq!(revocation(&revoked, holder()), None);
        assert_eq!(revoke("java-host", "it hangs", FIELD), "revoked: it hangs");
    }
}
