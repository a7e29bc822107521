//! A process that is frozen while it leads.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};

use testkit::real::{Signal, signal};

use super::*;

/// T16, SCH-11, F49, NEW-59: frozen for longer than its lease, a holder that thaws does nothing more as the leader, and
/// says that it has lost.
#[tokio::test]
async fn a_thawed_holder_stops_before_it_acts() {
    let server = server().await;
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["lease::key_value::tests::frozen::holder_that_is_frozen", "--exact", "--ignored", "--nocapture"])
        .env("LEASE_TEST_URL", server.url())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    lines.find(|line| line == "acts").unwrap();
    let next = leads(&replica(&server.url(), "b", SHORT).await).await;
    let state = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
    assert!(state.contains(") T "), "{state}");
    signal(child.id(), Signal::Continue);
    let rest: Vec<String> = lines.collect();
    assert!(child.wait().unwrap().success());
    // The test harness has its own words around ours.
    let nothing = "nothing: the lease was not renewed in time, and nobody can be asked who leads";
    let words = ["thawed", nothing, "lost: b holds the lease now"];
    assert!(rest.windows(words.len()).any(|said| said == words), "{rest:?}");
    assert!(!rest.contains(&"acts".to_owned()), "{rest:?}");
    still_leads(&next.tenure());
}

/// Not a test of its own: the child of [`a_thawed_holder_stops_before_it_acts`]. Freezes itself between two acts.
#[tokio::test]
#[ignore = "started by another test"]
async fn holder_that_is_frozen() {
    let Some(url) = std::env::var_os("LEASE_TEST_URL") else { return };
    let held = leads(&replica(url.to_str().unwrap(), "a", SHORT).await).await;
    let tenure = held.tenure();
    let say = |text: &str| writeln!(std::io::stdout(), "{text}").unwrap();
    let acts = || match tenure.permits(Act::Speak) {
        Ok(()) => say("acts"),
        Err(why) => say(&format!("nothing: {why}")),
    };
    let before = BootTime::now();
    acts();
    signal(std::process::id(), Signal::Stop);
    // Nothing else of this process runs before the tenure is looked at: only the clock can say that it is over.
    while BootTime::now().after(before) < SHORT.lease {
        std::thread::sleep(Duration::from_millis(10));
    }
    say("thawed");
    acts();
    say(&format!("lost: {}", lost(&held).await));
}
