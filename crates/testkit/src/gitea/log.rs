//! UpdateLog: the table of §9.

use jiff::Timestamp;
use runner_proto::runner::v1::{LogRow, UpdateLogRequest, UpdateLogResponse};

use connectrpc::ErrorCode;

use super::clock::from_wire;
use super::refusal::Refusal;
use super::rules::Rules;
use super::server::{Server, Status, Wording};

const CONTENT_LIMIT: usize = 64 * 1024;

impl Server {
    /// UpdateLog.
    pub(crate) fn update_log(
        &mut self,
        runner: i64,
        request: &UpdateLogRequest,
        now: Timestamp,
    ) -> Result<UpdateLogResponse, Refusal> {
        let rules = self.rules.clone();
        let task = self.owned_task(runner, request.task_id, Wording::UpdateLog)?;
        if task.status == Status::Cancelled && !rules.cancelled_takes_rows {
            return Err(archived());
        }
        let ack = count(task.log.len());
        let offered = count(request.rows.len());
        match select(request.index, offered, ack, &rules) {
            Some(first) => {
                if task.archived && rules.archived_refuses {
                    return Err(archived());
                }
                let new = request.rows.iter().skip(usize::try_from(first).unwrap_or_default());
                task.log.extend(new.map(|row| stored(row, &rules)));
                task.archived |= request.no_more && rules.no_more_archives;
                if rules.rows_keep_alive {
                    task.updated = now;
                }
            }
            None => {
                let gap = request.index > ack;
                if task.archived && offered > 0 && !gap && !rules.archived_accepts_old_rows {
                    return Err(archived());
                }
                let bare = !gap && !rules.bare_no_more_ignored;
                task.archived |= request.no_more && (bare || (gap && !rules.gap_ignores_no_more));
                if !rules.bare_log_keeps_nothing_alive {
                    task.updated = now;
                }
            }
        }
        Ok(UpdateLogResponse { ack_index: count(task.log.len()), ..Default::default() })
    }
}

/// The first of the offered rows that is to be appended; `None` when nothing is.
fn select(index: i64, offered: i64, ack: i64, rules: &Rules) -> Option<i64> {
    let known = if rules.ack_drops_known_rows { ack - index } else { 0 };
    if offered == 0 {
        None
    } else if index > ack {
        (!rules.gap_writes_nothing).then_some(0)
    } else if index + offered <= ack {
        (!rules.known_rows_write_nothing).then_some(0)
    } else {
        Some(known)
    }
}

fn archived() -> Refusal {
    Refusal::Status(ErrorCode::AlreadyExists, "log file has been archived".into())
}

fn stored(row: &LogRow, rules: &Rules) -> (Option<Timestamp>, String) {
    let time = row.time.as_option().and_then(from_wire);
    let mut content = row.content.clone();
    if rules.content_cut {
        let cut = (0..=CONTENT_LIMIT.min(content.len())).rev().find(|at| content.is_char_boundary(*at));
        content.truncate(cut.unwrap_or_default());
    }
    if rules.newlines_escaped {
        content = content.replace('\n', "\\n");
    }
    (time, content)
}

fn count(rows: usize) -> i64 {
    i64::try_from(rows).unwrap_or(i64::MAX)
}
