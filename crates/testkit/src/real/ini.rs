//! Gitea's `app.ini` for a throw-away server on the loopback interface.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use super::Error;

/// Sections with their keys; the section `""` holds the keys that stand before the first header.
pub(super) struct Ini(BTreeMap<String, BTreeMap<String, String>>);

impl Ini {
    /// The settings of a server with its state in `state` that listens on `port`.
    pub(super) fn new(state: &Path, static_files: &Path, port: u16, secret: &str) -> Self {
        let mut ini = Self(BTreeMap::new());
        let state = state.display();
        let url = format!("http://127.0.0.1:{port}/");
        let mut section = |name: &str, keys: &[(&str, &str)]| {
            let keys = keys.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
            ini.0.entry(name.to_owned()).or_default().extend(keys);
        };
        // Build machines often work as root, which Gitea refuses by default.
        section("", &[("APP_NAME", "testbed"), ("RUN_MODE", "prod"), ("WORK_PATH", &state.to_string())]);
        section("", &[("I_AM_BEING_UNSAFE_RUNNING_AS_ROOT", "true")]);
        section("server", &[("PROTOCOL", "http"), ("HTTP_ADDR", "127.0.0.1"), ("HTTP_PORT", &port.to_string())]);
        section("server", &[("DOMAIN", "127.0.0.1"), ("ROOT_URL", &url), ("LOCAL_ROOT_URL", &url)]);
        section("server", &[("STATIC_ROOT_PATH", &static_files.display().to_string()), ("DISABLE_SSH", "true")]);
        section("server", &[("OFFLINE_MODE", "true"), ("LFS_START_SERVER", "false")]);
        section("database", &[("DB_TYPE", "sqlite3"), ("PATH", &format!("{state}/gitea.db"))]);
        // WAL lets us read beside the server; its default patience of half a second is too short on a busy machine.
        section("database", &[("SQLITE_JOURNAL_MODE", "WAL"), ("SQLITE_TIMEOUT", "5000")]);
        section("security", &[("INSTALL_LOCK", "true"), ("SECRET_KEY", secret)]);
        // The password is random and comes with every call of ours: one round is enough for it.
        section("security", &[("PASSWORD_HASH_ALGO", "pbkdf2$1$50")]);
        // The key that signs logins elsewhere is made at the start: seconds of computing time for one of RSA.
        section("oauth2", &[("JWT_SIGNING_ALGORITHM", "ES256")]);
        section("service", &[("DISABLE_REGISTRATION", "true")]);
        section("repository", &[("ROOT", &format!("{state}/repositories"))]);
        // `uses: owner/repo@ref` means this server: tests have no internet.
        section("actions", &[("ENABLED", "true"), ("DEFAULT_ACTIONS_URL", "self")]);
        section("indexer", &[("ISSUE_INDEXER_TYPE", "db")]);
        section("webhook", &[("ALLOWED_HOST_LIST", "loopback"), ("DELIVER_TIMEOUT", "5")]);
        section("log", &[("MODE", "file"), ("LEVEL", "Info"), ("ROOT_PATH", &format!("{state}/log"))]);
        section("cron.update_checker", &[("ENABLED", "false")]);
        section("ui", &[("DEFAULT_THEME", "gitea-auto")]);
        ini
    }

    /// Sets one key, named `SECTION.KEY`; the last dot divides (`cron.stop_zombie_tasks.SCHEDULE`).
    pub(super) fn set(&mut self, name: &str, value: &str) -> Result<(), Error> {
        let (section, key) = name
            .rsplit_once('.')
            .ok_or_else(|| Error::system("override of app.ini")(format!("{name:?} is not SECTION.KEY")))?;
        self.0.entry(section.to_owned()).or_default().insert(key.to_owned(), value.to_owned());
        Ok(())
    }

    /// The text of the file.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        for (section, keys) in &self.0 {
            if !section.is_empty() {
                let _ = writeln!(text, "\n[{section}]");
            }
            for (key, value) in keys {
                let _ = writeln!(text, "{key} = {value}");
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn overrides_win_and_headless_keys_come_first() {
        let mut ini = Ini::new(Path::new("/s"), Path::new("/static"), 3000, "secret");
        ini.set("actions.ZOMBIE_TASK_TIMEOUT", "4s").unwrap();
        ini.set("cron.stop_zombie_tasks.SCHEDULE", "@every 1s").unwrap();
        ini.set("log.LEVEL", "Debug").unwrap();
        let text = ini.text();
        assert!(text.starts_with("APP_NAME = testbed\n"), "{text}");
        assert!(text.contains("\n[cron.stop_zombie_tasks]\nSCHEDULE = @every 1s\n"), "{text}");
        assert!(text.contains("LEVEL = Debug") && !text.contains("LEVEL = Info"), "{text}");
        assert!(text.contains("ROOT_URL = http://127.0.0.1:3000/"), "{text}");
        assert!(ini.set("nodot", "x").is_err());
    }
}
