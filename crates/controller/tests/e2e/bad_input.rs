//! What a person gets wrong ends the program at once: a message that names the thing and the remedy, an exit code, and
//! a state folder without half a registration.

use std::io::{Read as _, Write as _};

use testkit::real::{Access, Client, Settings, Standalone, workplace};

use crate::world::{SOON, World, server, settings};

/// Starts with a registration token file and a server of the case's own; returns what the program wrote and left.
async fn refused(url: &str, token: &str, environment: &[(&str, &str)]) -> (String, bool) {
    let gitea = server().await.client();
    let dir = workplace(&std::env::temp_dir()).unwrap();
    let elsewhere = Client::new(Access { url: url.to_owned(), ..gitea.access().clone() });
    let environment = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let settings = Settings { environment, ..settings(1) };
    let mut program = Standalone::start_with_token(settings, &elsewhere, dir.path(), token).unwrap();
    let status = program.ended(SOON).await.unwrap();
    assert!(!status.success() && status.code().is_some(), "{status}\n{}", program.log());
    let registered = program.state().join("registration.json").exists();
    (program.log(), registered)
}

#[track_caller]
fn assert_says(log: &str, words: &[&str]) {
    for word in words {
        assert!(log.contains(word), "{word:?} is not in:\n{log}");
    }
}

#[tokio::test]
async fn a_wrong_registration_token() {
    let url = server().await.url().to_owned();
    let (log, registered) = refused(&url, "0123456789012345678901234567890123456789", &[]).await;
    assert_says(&log, &["registration token"]);
    assert!(!log.contains("0123456789012345678901234567890123456789"), "the token itself is shown:\n{log}");
    assert!(!registered);
}

#[tokio::test]
async fn a_server_that_is_not_there() {
    // A port that was free a moment ago; nobody listens.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("http://127.0.0.1:{port}");
    let (log, registered) = refused(&url, "token", &[]).await;
    assert_says(&log, &[&url]);
    assert!(!registered);
}

#[tokio::test]
async fn a_login_page_instead_of_an_api() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    // Ends with the test process.
    std::thread::spawn(move || {
        for mut visitor in listener.incoming().flatten() {
            let _ = visitor.read(&mut [0; 4096]);
            let page = "<html>Please log in</html>";
            let head = format!("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {}\r\n", page.len());
            let _ = visitor.write_all(format!("{head}Connection: close\r\n\r\n{page}").as_bytes());
        }
    });
    let (log, registered) = refused(&url, "token", &[]).await;
    assert_says(&log, &[&url]);
    assert!(!registered);
}

#[tokio::test]
async fn a_runner_that_is_missing_or_no_program() {
    let gitea = server().await.client();
    let token = gitea.registration_token().await.unwrap();
    let url = gitea.access().url.clone();
    for path in ["/nonexistent/gitea-runner", "/etc/passwd"] {
        let (log, registered) = refused(&url, &token, &[("GITEA_RUNNER_BINARY", path)]).await;
        assert_says(&log, &[path, "GITEA_RUNNER_BINARY"]);
        assert!(!registered);
    }
}

#[tokio::test]
async fn a_second_process_on_the_same_state() {
    let mut world = World::new(1).await;
    let state = world.controller.state();
    let token = world.gitea.registration_token().await.unwrap();
    let dir = state.parent().unwrap().to_owned();
    let settings = Settings { program: world.controller.program().to_owned(), ..settings(1) };
    let before = world.controller.log().len();
    let mut second = Standalone::start_with_token(settings, &world.gitea, &dir, &token).unwrap();
    let status = second.ended(SOON).await.unwrap();
    assert!(!status.success(), "{status}");
    // Both write into one file.
    assert_says(&second.log()[before..], &[&state.display().to_string()]);
    // The second one owned nothing of the folder; its guard must not sweep the first one's processes.
    std::mem::forget(second);
    world.controller.online(&world.gitea, &world.label, SOON).await.unwrap();
    world.serves_another_job().await;
}
