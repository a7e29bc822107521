//! Questions about UpdateLog: the table of §9.

use anyhow::ensure;
use connectrpc::ErrorCode;
use runner_proto::runner::v1::Result as TaskResult;

use super::bench::{End, Held};
use super::{Bench, Of, Question};
use crate::runner_client::CallError;

pub(super) const QUESTIONS: &[Question] = &[
    Question {
        name: "Are rows that the server has stored once more?",
        rules: &["ack_drops_known_rows"],
        of: Of::Both,
        ask: |bench| Box::pin(overlap(bench)),
    },
    Question {
        name: "Does a call without new rows write anything?",
        rules: &["known_rows_write_nothing"],
        of: Of::Both,
        ask: |bench| Box::pin(known_rows(bench)),
    },
    Question {
        name: "Is no_more heard in a call that leaves a gap?",
        rules: &["gap_ignores_no_more"],
        of: Of::Both,
        ask: |bench| Box::pin(gap_with_no_more(bench)),
    },
    Question {
        name: "Is no_more heard in a call without a new row?",
        rules: &["bare_no_more_ignored"],
        of: Of::Both,
        ask: |bench| Box::pin(bare_no_more(bench)),
    },
    Question {
        name: "Does an archived log answer a call with rows that it has?",
        rules: &["archived_accepts_old_rows", "no_more_archives"],
        of: Of::Both,
        ask: |bench| Box::pin(old_rows_of_archived(bench)),
    },
    Question {
        name: "How is a line break in a row stored?",
        rules: &["newlines_escaped"],
        of: Of::Both,
        ask: |bench| Box::pin(line_break(bench)),
    },
    Question {
        name: "How much of a long row is stored?",
        rules: &["content_cut"],
        of: Of::Both,
        ask: |bench| Box::pin(long_row(bench)),
    },
    Question {
        name: "What do rows that leave a gap do?",
        rules: &["gap_writes_nothing"],
        of: Of::Both,
        ask: |bench| Box::pin(gap(bench)),
    },
    Question {
        name: "What does a closing row far behind the end do?",
        rules: &["gap_writes_nothing", "gap_ignores_no_more"],
        of: Of::Both,
        ask: |bench| Box::pin(far_behind(bench)),
    },
    Question {
        name: "Are rows taken after a cancel, until no_more?",
        rules: &["cancelled_takes_rows", "no_more_archives"],
        of: Of::Both,
        ask: |bench| Box::pin(rows_after_cancel(bench)),
    },
    Question {
        name: "Are rows taken after the end of the task, until no_more?",
        rules: &["no_more_archives"],
        of: Of::Both,
        ask: |bench| Box::pin(rows_after_end(bench)),
    },
    Question {
        name: "What do rows at a negative index do?",
        rules: &["ack_drops_known_rows"],
        of: Of::Both,
        ask: |bench| Box::pin(negative(bench)),
    },
    Question {
        name: "How many rows may a call have?",
        rules: &[],
        of: Of::Both,
        ask: |bench| Box::pin(many_rows(bench)),
    },
    Question {
        name: "What does a call without rows answer at the index 0?",
        rules: &[],
        of: Of::Both,
        ask: |bench| Box::pin(asks_for_ack(bench)),
    },
];

/// Whether the log is sealed, by trying to add a row.
pub(super) async fn sealed(held: &Held, ack: i64) -> anyhow::Result<bool> {
    match held.runner.update_log(&held.log_request(ack, &["probe"], End::More)).await {
        Ok(_) => Ok(false),
        Err(error) if error.code() == Some(ErrorCode::AlreadyExists) => Ok(true),
        // A server with genuine codes and one with Gitea's text are told apart by the traces.
        Err(CallError::Refused { message, .. }) if message.contains("archived") => Ok(true),
        Err(error) => Err(error.into()),
    }
}

async fn overlap(bench: &Bench<'_>) -> anyhow::Result<()> {
    let held = bench.held().await?;
    held.log(0, &["a", "b", "c"], End::More).await?;
    let ack = held.log(1, &["B", "C", "D"], End::More).await?;
    ensure!(ack == 4, "{ack} rows are acknowledged");
    let rows = bench.look(&held).await?.rows;
    ensure!(rows == ["a", "b", "c", "D"], "the rows are {rows:?}");
    Ok(())
}

async fn known_rows(bench: &Bench<'_>) -> anyhow::Result<()> {
    let held = bench.held().await?;
    held.log(0, &["a", "b"], End::More).await?;
    let ack = held.log(0, &["A"], End::More).await?;
    ensure!(ack == 2, "{ack} rows are acknowledged");
    let rows = bench.look(&held).await?.rows;
    ensure!(rows == ["a", "b"], "the rows are {rows:?}");
    Ok(())
}

async fn gap_with_no_more(bench: &Bench<'_>) -> anyhow::Result<()> {
    let held = bench.held().await?;
    held.log(0, &["a"], End::More).await?;
    held.log(5, &["f"], End::NoMore).await?;
    ensure!(!sealed(&held, 1).await?, "the log was sealed");
    Ok(())
}

async fn bare_no_more(bench: &Bench<'_>) -> anyhow::Result<()> {
    let held = bench.held().await?;
    held.log(0, &["a"], End::More).await?;
    held.log(1, &[], End::NoMore).await?;
    ensure!(!sealed(&held, 1).await?, "the log was sealed");
    Ok(())
}

async fn old_rows_of_archived(bench: &Bench<'_>) -> anyhow::Result<()> {
    let held = bench.held().await?;
    held.log(0, &["a", "b"], End::NoMore).await?;
    let ack = held.log(0, &["a", "b"], End::NoMore).await?;
    ensure!(ack == 2, "{ack} rows are acknowledged");
    ensure!(sealed(&held, 2).await?, "the log is not sealed");
    Ok(())
}

async fn line_break(bench: &Bench<'_>) -> anyhow::Result<()> {
    let held = bench.held().await?;
    held.log(0, &["one\ntwo"], End::NoMore).await?;
    held.report(TaskResult::Success, vec![]).await?;
    let rows = bench.look(&held).await?.rows;
    ensure!(rows == ["one\\ntwo"], "the rows are {rows:?}");
    Ok(())
}

async fn long_row(bench: &Bench<'_>) -> anyhow::Result<()> {
    let held = bench.held().await?;
    held.log(0, &[&"x".repeat(64 * 1024 + 10)], End::NoMore).await?;
    held.report(TaskResult::Success, vec![]).await?;
    let lengths: Vec<_> = bench.look(&held).await?.rows.iter().map(String::len).collect();
    ensure!(lengths == [64 * 1024], "the rows are {lengths:?} bytes long");
    Ok(())
}

async fn gap(bench: &Bench<'_>) -> anyhow::Result<()> {
    let held = bench.held().await?;
    held.log(0, &["a"], End::More).await?;
    let ack = held.log(3, &["d"], End::More).await?;
    let rows = bench.look(&held).await?.rows;
    ensure!(ack == 1 && rows == ["a"], "{ack} rows are acknowledged, stored are {rows:?}");
    Ok(())
}

/// How a log is closed by who does not know how long it is: nothing is written, the answer tells where it ends.
async fn far_behind(bench: &Bench<'_>) -> anyhow::Result<()> {
    let held = bench.held().await?;
    held.log(0, &["a", "b"], End::More).await?;
    bench.side.cancel(held.job).await?;
    let ack = held.log(1 << 40, &["last"], End::NoMore).await?;
    ensure!(ack == 2, "{ack} rows are acknowledged");
    ensure!(held.log(ack, &["last"], End::NoMore).await? == 3, "the last row is not acknowledged");
    let rows = bench.look(&held).await?.rows;
    ensure!(rows == ["a", "b", "last"], "the rows are {rows:?}");
    let ack = held.log(1 << 40, &["last"], End::NoMore).await?;
    ensure!(ack == 3, "{ack} rows of a closed log are acknowledged");
    ensure!(sealed(&held, 3).await?, "the log is open");
    Ok(())
}

async fn rows_after_cancel(bench: &Bench<'_>) -> anyhow::Result<()> {
    let held = bench.held().await?;
    held.log(0, &["a"], End::More).await?;
    bench.side.cancel(held.job).await?;
    ensure!(held.log(1, &["late"], End::More).await? == 2, "the late row is not acknowledged");
    held.log(2, &["last"], End::NoMore).await?;
    let rows = bench.look(&held).await?.rows;
    ensure!(rows == ["a", "late", "last"], "the rows are {rows:?}");
    ensure!(sealed(&held, 3).await?, "the log is open");
    Ok(())
}

async fn rows_after_end(bench: &Bench<'_>) -> anyhow::Result<()> {
    let held = bench.held().await?;
    held.report(TaskResult::Success, vec![]).await?;
    ensure!(held.log(0, &["late"], End::NoMore).await? == 1, "the late row is not acknowledged");
    let rows = bench.look(&held).await?.rows;
    ensure!(rows == ["late"], "the rows are {rows:?}");
    ensure!(sealed(&held, 1).await?, "the log is open");
    Ok(())
}

async fn asks_for_ack(bench: &Bench<'_>) -> anyhow::Result<()> {
    let held = bench.held().await?;
    let before = held.log(0, &[], End::More).await?;
    held.log(0, &["a", "b"], End::More).await?;
    let after = held.log(0, &[], End::More).await?;
    ensure!((before, after) == (0, 2), "{before}, then {after}");
    Ok(())
}

async fn negative(bench: &Bench<'_>) -> anyhow::Result<()> {
    let held = bench.held().await?;
    let ack = held.log(-1, &["a", "b"], End::More).await?;
    let rows = bench.look(&held).await?.rows;
    ensure!(ack == 1 && rows == ["b"], "{ack} rows are acknowledged, stored are {rows:?}");
    Ok(())
}

async fn many_rows(bench: &Bench<'_>) -> anyhow::Result<()> {
    let held = bench.held().await?;
    let ack = held.log(0, &["row"; 20_000], End::NoMore).await?;
    let rows = bench.look(&held).await?.rows.len();
    ensure!((ack, rows) == (20_000, 20_000), "{ack} rows are acknowledged, {rows} stored");
    Ok(())
}
