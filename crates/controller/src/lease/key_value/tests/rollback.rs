//! A server that comes back with an older state than it has confirmed: a disk that was restored from a snapshot, or a power
//! failure before the server had its files written.

use std::path::Path;

use super::*;

/// Where the server keeps its streams, below its folder.
const STREAMS: &str = "jetstream";

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let (entry, name) = entry.map(|entry| (entry.path(), entry.file_name())).unwrap();
        if entry.is_dir() {
            copy(&entry, &to.join(name));
        } else {
            std::fs::copy(&entry, to.join(name)).unwrap();
        }
    }
}

/// A copy of what the server has on its disk now.
async fn snapshot(server: &mut NatsServer) -> tempfile::TempDir {
    let copied = tempfile::tempdir().unwrap();
    server.stop().await.unwrap();
    copy(&server.folder().join(STREAMS), copied.path());
    server.start_again().await.unwrap();
    copied
}

/// The server forgets everything since the copy.
async fn roll_back(server: &mut NatsServer, to: &tempfile::TempDir) {
    server.kill();
    let streams = server.folder().join(STREAMS);
    std::fs::remove_dir_all(&streams).unwrap();
    copy(to.path(), &streams);
    server.start_again().await.unwrap();
}

/// NEW-47, NEW-59, SCH-10, T43: a lone leader whose server has lost its latest writes leads again, on what is left.
#[tokio::test]
async fn a_leader_goes_on_where_its_server_does() {
    let mut server = server().await;
    let held = leads(&replica(&server.url(), "a", SHORT).await).await;
    let copied = snapshot(&mut server).await;
    let before = revision(&server.url()).await;
    writes(&server.url(), 50).await;
    roll_back(&mut server, &copied).await;
    assert!(revision(&server.url()).await < before + 50);
    until(&held, Act::Decide, Err(Fenced::InDoubt)).await;
    until(&held, Act::Decide, Ok(())).await;
    writes(&server.url(), 2).await;
    // What it gives up is what is left.
    held.release().await;
    still_leads(&leads(&replica(&server.url(), "b", LONG).await).await.tenure());
}

/// NEW-59, SCH-11, F49, T16: a leader whose server has lost that it leads does so no more, and does not wait for ever.
#[tokio::test]
async fn a_leader_that_its_server_forgot_ends() {
    let mut server = server().await;
    leads(&replica(&server.url(), "a", SHORT).await).await.release().await;
    let copied = snapshot(&mut server).await;
    let held = leads(&replica(&server.url(), "a", SHORT).await).await;
    writes(&server.url(), 5).await;
    roll_back(&mut server, &copied).await;
    assert_eq!(lost(&held).await, Lost::Removed);
}
