//! Never more Pods than slots, whoever leads and whatever became of a create.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use testkit::gitea::Status;
use testkit::kubernetes::{Fault, Kubernetes, On, Resource, Verb};
use testkit::world::SOON;
use tokio::task::JoinHandle;

use crate::job;
use crate::site::Site;

/// How many Pods there were at a time.
struct Most {
    most: Arc<AtomicUsize>,
    looks: JoinHandle<()>,
}

impl Most {
    fn of(kubernetes: &Arc<Kubernetes>) -> Self {
        let (kubernetes, most) = (Arc::clone(kubernetes), Arc::new(AtomicUsize::default()));
        let seen = Arc::clone(&most);
        let looks = tokio::spawn(async move {
            let mut ticks = tokio::time::interval(Duration::from_millis(5));
            loop {
                ticks.tick().await;
                seen.fetch_max(kubernetes.names(Resource::Pods).len(), Ordering::SeqCst);
            }
        });
        Self { most, looks }
    }

    fn seen(&self) -> usize {
        self.most.load(Ordering::SeqCst)
    }
}

impl Drop for Most {
    fn drop(&mut self) {
        self.looks.abort();
    }
}

/// NEW-55, NEW-62, F42, T45: a Pod is made, the answer is lost, and the watch is silent: the Pod is looked for before its slot
/// is given to another, although no list shows it.
#[tokio::test]
async fn a_create_whose_answer_is_lost_keeps_its_slot() {
    let site = Site::start(1, &[("LOOK_AHEAD", "2")]).await;
    let most = Most::of(&site.kubernetes);
    site.kubernetes.silence_watches(true);
    site.kubernetes.fail(On::call(Verb::Create, Resource::Pods), Fault::lost_answer());
    let jobs = ["one", "two"].map(|key| site.gitea.push_one(job(key, &["say here"])));
    let made = |site: &Site| site.kubernetes.calls_of(Verb::Create, Resource::Pods).len() >= 2;
    site.eventually("another Pod is made", SOON, made).await;
    site.kubernetes.silence_watches(false);
    for job in jobs {
        site.ends_as(job, Status::Success, SOON).await;
    }
    assert_eq!(most.seen(), 1, "{}", site.log());
    site.finish().await;
}
