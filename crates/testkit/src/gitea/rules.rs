//! The rules of Gitea that the double keeps, one switch each.
//!
//! Every switch is set as Gitea 1.26.0 behaves. A flipped switch makes a mutant: either a recorded trace or a
//! conformance question must contradict it, else nothing shows that the double is right.

macro_rules! rules {
    ($($(#[$doc:meta])+ $name:ident = $default:literal;)+) => {
        /// Gitea's behaviour, rule by rule. `Rules::default()` is Gitea 1.26.0.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct Rules {
            $($(#[$doc])+ pub $name: bool,)+
        }

        impl Default for Rules {
            fn default() -> Self {
                Self { $($name: $default,)+ }
            }
        }

        impl Rules {
            /// The names of all rules.
            pub const NAMES: &[&str] = &[$(stringify!($name),)+];

            /// Gitea 1.26.0 with one rule broken; `None` for a name that no rule has.
            #[must_use]
            pub fn mutant(name: &str) -> Option<Self> {
                let mut rules = Self::default();
                match name {
                    $(stringify!($name) => rules.$name = !rules.$name,)+
                    _ => return None,
                }
                Some(rules)
            }

            /// These rules on a newer server: what 1.27 does the other way.
            #[must_use]
            pub fn newer(self) -> Self {
                Self {
                    finish_bumps: !self.finish_bumps,
                    cancel_bumps: !self.cancel_bumps,
                    bare_no_more_ignored: !self.bare_no_more_ignored,
                    cancelling: !self.cancelling,
                    ..self
                }
            }
        }
    };
}

rules! {
    /// A job is looked for only when the version sent is not the server's (§4.1.2).
    version_gate = true;
    /// The gate is "not equal", so a version from the future opens it as well (§4.1.2).
    gate_is_inequality = true;
    /// The reply to FetchTask carries the server's version, with or without a task (§4.1.3).
    version_in_reply = true;
    /// A run raises the version once, however many jobs it has (§4.2).
    run_bumps_once = true;
    /// A run raises the version of its repository, of its owner and of all (§4.2).
    version_reaches_owner = true;
    /// Disabling and enabling a runner raise the version (§4.2).
    disabling_bumps = true;
    /// Newer servers: a job's end raises the version while others wait (§4.2, 1.27).
    finish_bumps = false;
    /// Newer servers: a cancel that ends waiting jobs raises the version (§4.2, 1.27).
    cancel_bumps = false;
    /// Every `runs-on` label must have been declared (§5).
    every_label_needed = true;
    /// A job without `runs-on` goes to any runner (§5).
    unlabelled_goes_anywhere = true;
    /// The job that waits longest is handed out first (§4.4).
    oldest_first = true;
    /// A task is handed out once (§4.1.4).
    claim_is_final = true;
    /// A disabled runner gets an empty answer (§4.4).
    disabled_gets_nothing = true;
    /// A disabled runner goes on reporting what it holds (§4.4).
    disabled_reports_on = true;
    /// A runner sees the jobs of its scope only (§4.4).
    scope_limits_jobs = true;
    /// Labels are compared letter by letter (§5).
    labels_case_sensitive = true;
    /// Declare replaces the labels (§5).
    declare_replaces_labels = true;
    /// A job of a matrix is one task per combination (§11.1).
    matrix_is_split = true;
    /// A missing `runs-on` arrives as an empty list (§11.1).
    missing_runs_on_is_empty_list = true;
    /// The job's token is among the secrets, twice (§11.1).
    tokens_in_secrets = true;
    /// A task names its repository as it is called at the fetch (§11.2).
    renamed_at_fetch = true;
    /// The webhook `queued` goes out with the push, `in_progress` with the fetch (§15).
    start_is_announced = true;

    /// A job moves on when all its needs have succeeded (§7.4).
    needs_release = true;
    /// A job whose need did not succeed is skipped (§7.4).
    failed_need_skips = true;
    /// The outputs of a need are in the task (§11.1).
    outputs_reach_dependents = true;
    /// A rerun raises the version for every job that waits again (§4.2).
    rerun_bumps = true;
    /// A rerun blocks the jobs that need others again (§4.2).
    rerun_blocks_dependents = true;
    /// A run waits while another of its concurrency group has not ended (§4.5).
    concurrency_waits = true;
    /// Runs of a concurrency group that only wait give way to a newer one (§4.5).
    concurrency_spares_running_only = true;
    /// `cancel-in-progress` cancels the others of the group (§4.5).
    concurrency_cancels = true;
    /// The tasks of a deleted run or repository do not exist any more (§3.2).
    deletion_forgets_tasks = true;
    /// The tasks of a deleted runner stay Running (§3.2).
    deleted_runner_leaves_tasks = true;

    /// The first terminal update wins; later ones change nothing (§7.2).
    first_terminal_wins = true;
    /// A user's cancel wins over whatever the runner reports later (§8).
    cancel_wins = true;
    /// The reply on a cancelled task says CANCELLED (§7.7).
    cancelled_in_reply = true;
    /// The reply on a running task has no result (§7.7).
    running_has_no_result = true;
    /// A started step that a request leaves out is set back to Running (§6).
    absent_steps_reset = true;
    /// Times and log ranges cannot be set back to zero (§7.5).
    zeroes_not_written = true;
    /// Step states are stored as reported (§7.5).
    steps_stored = true;
    /// Steps beyond the job's own are ignored (§7.5).
    unknown_steps_ignored = true;
    /// The end of a task is the request's `stopped_at`, 1970 if it has none (§7.3).
    stopped_at_kept = true;
    /// `sent_outputs` lists every stored key, not only those of the request (§7.6).
    sent_outputs_lists_all = true;
    /// An output that is stored already keeps its value (§7.6).
    outputs_insert_if_absent = true;
    /// Keys over 255 bytes and values over 1 MiB are skipped without a word (§7.6).
    large_outputs_skipped = true;
    /// A terminal update closes no step by itself (§7.5).
    terminal_leaves_steps_open = true;
    /// UpdateTask on an ended task sends the `completed` webhook again (§7.2).
    ended_sends_webhooks_again = true;
    /// A task of another registration is refused (§3.2).
    foreign_task_refused = true;
    /// A task that does not exist is refused (§3.2).
    unknown_task_refused = true;
    /// UpdateTask without `state` makes the handler panic (§6).
    missing_state_panics = true;

    /// Rows below the acknowledged index are dropped, the rest is appended (§9).
    ack_drops_known_rows = true;
    /// A call without new rows writes nothing and replies the stored count (§9).
    known_rows_write_nothing = true;
    /// Rows beyond the stored count write nothing and are no error (§9).
    gap_writes_nothing = true;
    /// `no_more` is ignored in a call that leaves a gap (§9).
    gap_ignores_no_more = true;
    /// `no_more` with a row archives the log (§9).
    no_more_archives = true;
    /// `no_more` without a new row is ignored (§9; newer servers archive).
    bare_no_more_ignored = true;
    /// An archived log refuses new rows (§9).
    archived_refuses = true;
    /// An archived log answers calls without new rows (§9).
    archived_accepts_old_rows = true;
    /// A line break in a row is stored as the two characters `\n` (§9).
    newlines_escaped = true;
    /// A row is cut at 64 KiB (§9).
    content_cut = true;

    /// Newer servers: a cancel is a handshake when the runner declared `cancelling` (§8, 1.27).
    cancelling = false;
    /// A cancel closes the open steps (§8).
    cancel_closes_steps = true;
    /// A cancelled task still takes log rows (§8).
    cancelled_takes_rows = true;
    /// Step updates on a cancelled task are ignored (§8).
    cancelled_freezes_steps = true;
    /// Newer servers: a task that was asked to stop ends as cancelled, whatever it reports (§8, 1.27).
    cancelling_ends_cancelled = true;
    /// Newer servers: steps of such a task are stored until it ends (§8, 1.27).
    cancelling_takes_steps = true;
    /// Newer servers: only a task that reported within the last minute is asked (§8, 1.27.1).
    cancelling_wants_a_report = true;
    /// Newer servers: a silent one is ended by the zombie sweep as cancelled (§6, 1.27).
    silent_cancelling_is_cancelled = true;
    /// Newer servers: the Declare reply tells the server's capabilities (§5, 1.27).
    capabilities_told = true;

    /// A silent task is failed by the zombie sweep (§6).
    zombie_ends_silent = true;
    /// UpdateTask without a result keeps a task alive (§6).
    heartbeat_keeps_alive = true;
    /// UpdateLog with new rows keeps a task alive (§6).
    rows_keep_alive = true;
    /// UpdateLog without new rows does not keep a task alive (§6).
    bare_log_keeps_nothing_alive = true;
    /// The endless limit counts from the fetch, whatever is reported (§6).
    endless_counts_from_fetch = true;
    /// The sweep archives a log with rows (§6).
    zombie_archives_rows = true;
    /// The sweep leaves a log without rows open (§6).
    zombie_leaves_empty_log_open = true;
    /// The sweep closes the unfinished steps as FAILURE (§6).
    zombie_closes_steps = true;

    /// A job that nobody fetches is cancelled (§6).
    abandoned_is_cancelled = true;

    /// The job's token is refused after the end (§8).
    job_token_dies = true;
    /// Artifacts and summaries are taken from running tasks only (§12).
    artifacts_want_running = true;
    /// The URLs of artifacts carry the Host of the request (§12).
    artifact_urls_follow_host = true;
    /// Their scheme is that of `X-Forwarded-Proto` (§12).
    artifact_urls_follow_scheme = true;

    /// Application errors are HTTP 500 `unknown` with a gRPC text (§3.2).
    errors_are_500 = true;
    /// A panic is HTTP 500 with a plain text (§3.1).
    panic_is_text = true;
    /// Register wants a known registration token (§14.2).
    registration_token_checked = true;
    /// Register wants a name (§14.2).
    name_checked = true;
    /// The reply to Declare has no token (§5).
    declare_hides_token = true;
}
