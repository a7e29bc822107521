//! The settings of one-host mode: what its flags mean, what it remembers, and what it decides by itself.

use std::path::Path;

use domain::id::Backend;
use domain::policy::{LabelMap, SelfHosted};

use super::error::StartError;
use super::state::{self, Registration};
use super::{Surroundings, state_of};
use crate::args::{STANDALONE_OPS, SettingsArgs, StandaloneArgs};
use crate::config::raw::{Raw, Source};
use crate::config::{Config, ConfigErrors, GiteaUrl, QueueKind, SettingError, check_given, table, validate, value};

/// The settings that a start with these flags would use, as far as they are known without asking or writing anything:
/// what the first start makes is not there before it. With it, whether they are right.
///
/// # Errors
/// The state folder cannot be named or read.
pub fn view(args: &StandaloneArgs, here: &Surroundings) -> Result<(Raw, Result<(), ConfigErrors>), StartError> {
    let state = state_of(args, here)?;
    state::ours(&state)?;
    let known = Registration::read(&state)?;
    let mut raw = collect(args, here, known.as_ref());
    // What follows is our own, and partly not made yet: then each value is judged by itself, else all of them together.
    let (given, port) = (check_given(&raw), state::known_port(&state)?);
    own_settings(&mut raw, &state, known.as_ref(), port);
    let registered = known.is_some();
    let judged = match known {
        Some(known) if port.is_some() => given.and_then(|()| validate(&raw, known.supplied(&state)).map(drop)),
        _ => given,
    };
    // Shown only: UUID and token are parts of that file, which no setting can say.
    if registered {
        for name in ["GITEA_RUNNER_UUID_FILE", "GITEA_RUNNER_TOKEN_FILE"] {
            raw.force(name, &Registration::file(&state).display().to_string());
        }
    }
    Ok((raw, judged))
}

/// What a start on this folder would use where its queue is in NATS; none where the queue is a file below it, or where the
/// folder has no registration of one-host mode. Nothing is made.
///
/// # Errors
/// The folder cannot be read, or the settings are wrong.
pub fn with_queue_in_nats(
    state: &Path,
    settings: &SettingsArgs,
    here: &Surroundings,
) -> Result<Option<Config>, StartError> {
    let Some(known) = Registration::read(state)? else { return Ok(None) };
    let args =
        StandaloneArgs { state: Some(state.to_owned()), settings: settings.clone(), ..StandaloneArgs::default() };
    let mut raw = collect(&args, here, Some(&known));
    if raw.value(&table::QUEUE) != Some(QueueKind::JetStream) {
        return Ok(None);
    }
    own_settings(&mut raw, state, Some(&known), state::known_port(state)?);
    validate(&raw, known.supplied(state)).map(Some).map_err(StartError::Settings)
}

/// Flags and the rest of the settings; the Gitea of a registration where nobody names one.
pub(super) fn collect(args: &StandaloneArgs, here: &Surroundings, known: Option<&Registration>) -> Raw {
    let mut raw = Raw::collect(&args.settings, here.environment.iter().cloned());
    for (name, value) in [("COMPONENTS", "scheduler,local-worker"), ("IDENTITY_ISSUER", "built-in")] {
        raw.force(name, value);
    }
    let flags = [
        ("GITEA_INSTANCE_URL", &args.gitea),
        ("LOCAL_CAPACITY", &args.capacity),
        ("LOCAL_ISOLATION", &args.isolation),
        ("OPS_LISTEN", &args.ops_listen),
        ("TRUST_DOMAIN", &args.trust_domain),
    ];
    for (name, value) in flags.iter().filter_map(|(name, value)| value.as_ref().map(|value| (*name, value))) {
        raw.overrule(name, value);
    }
    if let Some(known) = known {
        raw.preset("GITEA_INSTANCE_URL", &known.gitea);
    }
    raw.preset("QUEUE", "embedded");
    raw.preset("DEFAULT_BACKEND", "local");
    raw.preset("OPS_LISTEN", &STANDALONE_OPS.to_string());
    if here.terminal {
        raw.preset("LOG_FORMAT", "text");
    }
    labels(&mut raw, &args.label);
    raw.warn_of_no_effect();
    raw
}

/// Everything that is wrong with the settings as far as it can be told before the rest is made; else the Gitea.
pub(super) fn judge(raw: &Raw) -> Result<GiteaUrl, StartError> {
    check_given(raw).map_err(StartError::Settings)?;
    let url = raw.value(&table::GITEA_INSTANCE_URL).ok_or(StartError::GiteaNeeded)?;
    if url.is_exposed() && raw.value(&table::ALLOW_PLAINTEXT) != Some(true) {
        return Err(StartError::Settings(ConfigErrors(vec![SettingError::new(
            "--gitea",
            format!("--gitea: {url} would carry tokens and secrets in clear text"),
            "use https, or add --set ALLOW_PLAINTEXT=true if the network is yours alone",
        )])));
    }
    Ok(url)
}

/// Each `--label L` is `L=local` beside what EXTRA_LABELS says already.
fn labels(raw: &mut Raw, labels: &[String]) {
    let known = raw.get("EXTRA_LABELS").map(|(text, _)| text.to_owned());
    if labels.is_empty() {
        return;
    }
    let named = labels.iter().map(|label| label.trim()).filter(|label| !matches!(*label, "local" | "self-hosted"));
    let mut all: Vec<String> = known.into_iter().collect();
    for label in named {
        match value::plain_label(label) {
            Ok(label) => all.push(format!("{label}=local")),
            Err(why) => raw.errors.push(SettingError::new(
                "EXTRA_LABELS",
                format!("--label: {why}"),
                "write the plain name, as runs-on names it",
            )),
        }
    }
    raw.set("EXTRA_LABELS", &all.join(","), Source::Flag);
}

/// What one-host mode decides by itself.
pub(super) fn own_settings(raw: &mut Raw, state: &Path, known: Option<&Registration>, port: Option<u16>) {
    let [capability, envelope] = state::KEYS.map(|name| state::key_file(state, name).display().to_string());
    let mut own = vec![
        ("STATE_DIR", state.display().to_string()),
        ("RUNNER_FACADE_CAPABILITY_KEY_FILE", capability),
        ("ENVELOPE_KEY_FILE", envelope),
    ];
    if let Some(known) = known {
        own.push(("TRUST_DOMAIN", known.trust_domain.clone()));
        own.push(("RUNNER_FACADE_SPIFFE_ID", format!("spiffe://{}/gitea-dynamic-runner", known.trust_domain)));
        own.extend(known.instance.clone().map(|instance| ("INSTANCE_ID", instance)));
    }
    if let Some(port) = port {
        own.push(("RUNNER_FACADE_URL", format!("https://127.0.0.1:{port}")));
        own.push(("RUNNER_FACADE_LISTEN", format!("127.0.0.1:{port}")));
    }
    own.iter().for_each(|(name, value)| raw.force(name, value));
}

/// The labels to register with, in the order of requirements §1.1; Declare says them again at every start.
pub(super) fn declared(raw: &Raw) -> Vec<String> {
    let extra = raw.value(&table::EXTRA_LABELS).unwrap_or_default();
    let self_hosted = match raw.value(&table::DECLARE_SELF_HOSTED) {
        Some(true) => SelfHosted::Declared,
        Some(false) | None => SelfHosted::Left,
    };
    LabelMap::new(&[Backend::Local], "vm", &extra).declared(&[Backend::Local], self_hosted)
}
