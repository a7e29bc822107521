//! The end of a Pod: entry first, then the Pod, by its UID (POD-7, NEW-126).

use std::sync::Arc;
use std::time::Duration;

use kube::api::{DeleteParams, PropagationPolicy};
use tokio::time::{Instant, timeout};

use super::care::Identity;
use super::seen::Seen;
use super::{ISSUER, Shared, transient};
use crate::backend::BackendError;
use crate::identity::entry::IssueError;
use crate::kubernetes::only_this;

/// Whoever is removed has had its grace already, or has nothing to finish; this is for its container to end in order.
/// Never 0: then the name would be free before the work has ended.
const GRACE: u32 = 10;
/// An ordinary end takes its grace and a few seconds.
const PATIENCE: Duration = Duration::from_secs(15);

pub(super) async fn delete(shared: &Arc<Shared>, name: &str) -> Result<(), BackendError> {
    let found = shared.find(name).await.map_err(|refusal| transient(&format!("find Pod {name}"), refusal))?;
    let Some(pod) = found else { return Ok(()) };
    // A foreign one that has the name is not ours to remove (NEW-2).
    if !shared.owns(&pod) {
        return Ok(());
    }
    remove(shared, &pod).await?;
    wait_until_gone(shared, &pod).await
}

/// Takes the identity away and asks for the end.
pub(super) async fn remove(shared: &Arc<Shared>, pod: &Seen) -> Result<(), BackendError> {
    shared.with_care(&pod.uid, |care| care.identity = Identity::Released);
    release(shared, pod).await?;
    // Whoever goes before this was not removed by us, and leaves its entry.
    shared.with_care(&pod.uid, |care| care.dismissed = true);
    let params = DeleteParams {
        grace_period_seconds: Some(GRACE),
        propagation_policy: Some(PropagationPolicy::Background),
        ..only_this(Some(pod.uid.clone()))
    };
    match shared.pods.delete(&pod.name, &params).await {
        Ok(left) => {
            if let Some(pod) = left {
                shared.observatory.put(pod);
            }
            Ok(())
        }
        // Gone, or another Pod has its name.
        Err(refusal) if refusal.is_not_found() || shared.is_replaced(pod, &refusal).await => {
            shared.observatory.store().forget(&pod.name, &pod.uid);
            shared.observatory.stir();
            Ok(())
        }
        Err(refusal) => Err(transient(&format!("delete Pod {}", pod.name), refusal)),
    }
}

/// Takes the identity of a Pod away that others removed. Its UID never comes back; what fails here is left to the sweep.
pub(super) fn bury(shared: &Arc<Shared>, pod: &Arc<Seen>) {
    let (shared, pod) = (Arc::clone(shared), Arc::clone(pod));
    tokio::spawn(async move {
        let Ok(_permit) = shared.calls.acquire().await else { return };
        if let Err(error) = release(&shared, &pod).await {
            tracing::warn!(component = "lifecycle", executor = %pod.name, %error, "left to the sweep");
        }
    });
}

async fn release(shared: &Shared, pod: &Seen) -> Result<(), BackendError> {
    let released = timeout(ISSUER, shared.issuer.release(pod.key())).await;
    let cause = match released {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(IssueError::Refused { cause, .. } | IssueError::Later { cause })) => cause,
        Err(_) => format!("no answer within {} s", ISSUER.as_secs()),
    };
    let cause = format!("the identity entry of Pod {} cannot be taken away: {cause}", pod.name);
    Err(BackendError::Transient { cause, retry_after: None })
}

/// The Pod holds its slot until it is gone (NEW-55).
async fn wait_until_gone(shared: &Shared, pod: &Seen) -> Result<(), BackendError> {
    let until = Instant::now() + PATIENCE;
    let mut pause = Duration::from_millis(50);
    loop {
        let now = shared.observatory.store().get(&pod.name).filter(|now| now.uid == pod.uid);
        let Some(now) = now else { return Ok(()) };
        if Instant::now() >= until {
            return Err(BackendError::Transient { cause: still_there(&now), retry_after: None });
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(1));
    }
}

fn still_there(pod: &Seen) -> String {
    let (name, node) = (&pod.name, pod.node.as_deref().unwrap_or("no node"));
    if pod.finalizers.is_empty() {
        return format!("Pod {name} does not go although it was deleted; its node ({node}) may be away");
    }
    format!("Pod {name} does not go although it was deleted; finalizers keep it: {}", pod.finalizers.join(", "))
}
