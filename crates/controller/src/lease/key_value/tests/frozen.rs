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
    signal(child.id(), Signal::Stop);
    let next = leads(&replica(&server.url(), "b", SHORT).await).await;
    writeln!(std::io::stdout(), "taken over").unwrap();
    signal(child.id(), Signal::Continue);
    // What it had written before it was frozen is still in the pipe: no more than the pauses between two acts allow.
    let rest: Vec<String> = lines.collect();
    assert!(child.wait().unwrap().success());
    let thawed = rest.iter().position(|line| line == "thawed").unwrap();
    assert_eq!(rest[thawed + 1..][..2], ["over: the lease was not renewed in time", "lost"], "{rest:?}");
    assert!(!rest[thawed..].contains(&"acts".to_owned()), "{rest:?}");
    still_leads(&next.tenure());
}

/// Not a test of its own: the child of [`a_thawed_holder_stops_before_it_acts`]. Acts as long as it may.
#[tokio::test]
#[ignore = "started by another test"]
async fn holder_that_is_frozen() {
    let Some(url) = std::env::var_os("LEASE_TEST_URL") else { return };
    let held = leads(&replica(url.to_str().unwrap(), "a", SHORT).await).await;
    let tenure = held.tenure();
    let say = |text: &str| writeln!(std::io::stdout(), "{text}").unwrap();
    let mut last = BootTime::now();
    loop {
        let now = BootTime::now();
        if now.after(last) >= SHORT.renew_deadline {
            say("thawed");
        }
        last = now;
        match tenure.over() {
            None => say("acts"),
            Some(why) => break say(&format!("over: {why}")),
        }
        // The runtime's other tasks do not run meanwhile: nothing but the clock can say that it is over.
        std::thread::sleep(Duration::from_millis(10));
        tokio::task::yield_now().await;
    }
    timeout(SOON, held.lost()).await.unwrap();
    say("lost");
}
