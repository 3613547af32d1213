//! The server's settings as they are for this role and this database.

use std::collections::HashMap;
use std::time::Duration;

use crate::failure::Failure;
use crate::wire::{Session, get};

/// All settings that the role may see, in the server's own units.
pub(super) struct Settings(HashMap<String, Setting>);

struct Setting {
    value: String,
    source: String,
}

impl Settings {
    pub(super) async fn read(session: &Session, limit: Duration) -> Result<Self, Failure> {
        let rows = session.ask("SELECT name, setting, source FROM pg_settings", &[], limit).await?;
        let mut settings = HashMap::with_capacity(rows.len());
        for row in rows {
            let value: Option<String> = get(&row, 1)?;
            let setting = Setting { value: value.unwrap_or_default(), source: get(&row, 2)? };
            settings.insert(get(&row, 0)?, setting);
        }
        Ok(Self(settings))
    }

    /// A setting; none if this version has none of that name, or the role may not see it.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(|setting| setting.value.as_str())
    }

    pub(super) fn number(&self, name: &str) -> Option<i64> {
        self.get(name).and_then(|value| value.parse().ok())
    }

    /// A setting with its name and where it comes from, for people.
    pub(super) fn shown(&self, name: &str) -> String {
        let Some(Setting { value, source }) = self.0.get(name) else {
            return format!("{name} is not known");
        };
        let origin = match source.as_str() {
            "default" => "the server's default",
            "user" | "database user" => "set for the role",
            "database" => "set for the database",
            _ => "set for the server",
        };
        let value = if value.is_empty() { "empty" } else { value };
        format!("{name} is {value} ({origin})")
    }

    /// The statement that sets it where it was set.
    pub(super) fn remedy(&self, name: &str, value: &str, role: &str) -> String {
        match self.0.get(name).map(|setting| setting.source.as_str()) {
            Some("user" | "database user") => format!("run ALTER ROLE {role} SET {name} = {value}"),
            Some("database") => format!("run ALTER DATABASE … SET {name} = {value}"),
            Some("command line") => {
                format!("start the server without the option that sets {name}, or with {value}")
            }
            _ => format!("run ALTER SYSTEM SET {name} = {value} and SELECT pg_reload_conf()"),
        }
    }
}
