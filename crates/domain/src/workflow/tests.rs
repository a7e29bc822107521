#![expect(clippy::unwrap_used, reason = "tests")]

use proptest::prelude::*;

use super::*;

/// As Gitea writes a job without labels (trace of 1.26.0, shortened).
const UNLABELLED: &str = r#"name: baseline
"on": push
env:
    TOP: level
jobs:
    build:
        name: build
        runs-on: []
        steps:
            - run: |
                runs-on: []
                jobs:
            - run: echo two
              continue-on-error: true
"#;

const LIST: &str = r#"["self-hosted", "local"]"#;

fn labels() -> Vec<String> {
    vec!["self-hosted".to_owned(), "local".to_owned()]
}

#[track_caller]
fn runs_on_of(value: &str) -> Vec<String> {
    Job::parse(format!("jobs:\n  a:\n    runs-on: {value}\n    steps: []\n").as_bytes()).unwrap().runs_on
}

#[track_caller]
fn problem(payload: impl AsRef<[u8]>) -> String {
    let refusal = Job::parse(payload.as_ref()).unwrap_err();
    assert_eq!(refusal.reason, Reason::InvalidWorkflow);
    refusal.cause
}

/// ENV-2: every form of `runs-on`; what holds no label is no label.
#[test]
fn labels_are_read_in_every_form() {
    assert_eq!(runs_on_of("[self-hosted, pod]"), ["self-hosted", "pod"]);
    assert_eq!(runs_on_of("pod"), ["pod"]);
    assert_eq!(runs_on_of("\n      - self-hosted\n      - 'vm'"), ["self-hosted", "vm"]);
    assert_eq!(runs_on_of("{group: large, labels: [pod]}"), ["pod"]);
    assert_eq!(runs_on_of("{group: large, labels: pod}"), ["pod"]);
    assert_eq!(runs_on_of("on"), ["on"], "a label, not the boolean of YAML 1.1");
    assert_eq!(runs_on_of("007"), ["007"], "a label, not the number 7");
    for empty in ["[]", "", "~", "null", "''", "\"\"", "[~]", "['']", "{group: large}"] {
        assert!(runs_on_of(empty).is_empty(), "{empty:?}");
    }
    assert!(Job::parse(b"jobs: {a: {steps: []}}").unwrap().runs_on.is_empty());
    for broken in ["7", "[true]", "[[pod]]"] {
        problem(format!("jobs: {{a: {{runs-on: {broken}}}}}"));
    }
}

/// ENV-3: exactly one job that is not null.
#[test]
fn anything_but_one_job_is_refused() {
    assert!(problem("jobs: {}").contains("no job"));
    assert!(problem("jobs: {a: {}, b: {}}").contains("more than one job"));
    assert!(problem("jobs: {a: ~}").contains("empty"));
    assert!(problem("jobs: {a: text}").contains("empty"));
    assert!(problem("jobs: {1: {}}").contains("not a text"));
    for payload in ["", "~", "[]", "jobs:", "jobs: []", "on: push", "jobs: {a: {", "a: b: c", "jobs: {a: {steps: {}}}"]
    {
        problem(payload);
    }
    problem(b"\xff\xfej\0o\0b\0s\0:\0");
    problem("jobs: {a: {}}\n---\njobs: {b: {}}\n");
}

/// ENV-3: no two readers may see two different jobs.
#[test]
fn keys_are_unique_whatever_their_type() {
    problem("jobs: {a: {}}\njobs: {b: {}}");
    problem("jobs: {a: {}, a: {}}");
    problem("jobs: {a: {runs-on: pod, runs-on: vm}}");
    problem("jobs: {a: {env: {1: x, \"1\": y}}}");
    problem("jobs: {a: {env: {true: x, \"true\": y}}}");
    problem("jobs: {a: {env: {? [x] : y}}}");
}

/// ENV-3: a payload of anybody who may push costs a bounded effort.
#[test]
fn the_budget_holds() {
    let padded = |size: usize| format!("jobs: {{a: {{}}}}\n#{}", "x".repeat(size));
    assert!(Job::parse(padded(1000).as_bytes()).is_ok());
    assert!(problem(padded(1 << 20)).contains("bytes; at most"));
    let nested = |depth: usize| format!("jobs: {{a: {{env: {}{}}}}}", "[".repeat(depth), "]".repeat(depth));
    assert!(Job::parse(nested(50).as_bytes()).is_ok());
    problem(nested(64));
    let many = |nodes: usize| format!("jobs: {{a: {{env: [{}]}}}}", "1,".repeat(nodes));
    assert!(Job::parse(many(49_000).as_bytes()).is_ok());
    problem(many(50_000));
    let bomb: String = (1..9).map(|n| format!("k{n}: &k{n} [{}]\n", format!("*k{},", n - 1).repeat(9))).collect();
    problem(format!("jobs: {{a: {{}}}}\nk0: &k0 x\n{bomb}"));
}

/// NEW-14: the cause goes to a job page; it quotes no line of the workflow.
#[test]
fn a_cause_does_not_quote_the_workflow() {
    for text in ["env:\n  TOKEN: s3cr3t\njobs: {a: {}, a: {}}\n", "env:\n  TOKEN: 's3cr3t\n", "env:\n  TOKEN: [s3cr3t}"]
    {
        let cause = problem(text);
        assert!(!cause.contains("s3cr3t") && !cause.contains('\n'), "{cause}");
    }
}

/// Which steps tolerate failure; an expression is not decided here.
#[test]
fn steps_tell_whether_the_job_goes_on() {
    use ContinueOnError::{No, Undecided, Yes};
    let steps = "[{run: a}, {continue-on-error: false}, {continue-on-error: true}, {continue-on-error: 'true'}, \
                 {continue-on-error: \"False\"}, {continue-on-error: '${{ matrix.x }}'}, {continue-on-error: yes}, ~]";
    let job = Job::parse(format!("jobs: {{a: {{steps: {steps}}}}}").as_bytes()).unwrap();
    let read: Vec<_> = job.steps.iter().map(|step| step.continue_on_error).collect();
    assert_eq!(read, [No, No, Yes, Yes, No, Undecided, Undecided, No]);
}

/// Values of other people's steps are no reason to refuse a job.
#[test]
fn odd_values_elsewhere_are_none_of_our_business() {
    Job::parse(b"jobs: {a: {steps: [{with: {x: .nan, y: -.inf, z: !own [1], n: 123456789012345678901234567890}}]}}")
        .unwrap();
}

#[track_caller]
fn check_edit(before: &str, after: &str) {
    let edited = with_runs_on(before.as_bytes(), &labels()).unwrap();
    assert_eq!(std::str::from_utf8(&edited).unwrap(), after);
    assert_eq!(Job::parse(&edited).unwrap().runs_on, labels());
    assert_eq!(with_runs_on(before.as_bytes(), &labels()).unwrap(), edited, "the same bytes each time");
}

/// NEW-161: only `runs-on` of the job changes; the text of a step that looks like it does not.
#[test]
fn an_empty_runs_on_is_filled() {
    check_edit(UNLABELLED, &UNLABELLED.replacen("runs-on: []", &format!("runs-on: {LIST}"), 1));
    for empty in [" []", " [ ]", "", " ~", " null", " ''", " \"\"", " ['']", " [~]"] {
        for end in ["\n", "\r\n", "   \n", " # none\n"] {
            let document = |value: &str| format!("jobs:{end}  a:{end}    runs-on:{value}{end}    steps: []{end}");
            check_edit(&document(empty), &document(&format!(" {LIST}")));
        }
    }
    check_edit("jobs:\n  'a':\n    \"runs-on\": []", &format!("jobs:\n  'a':\n    \"runs-on\": {LIST}"));
}

/// NEW-161: a missing `runs-on` becomes one new line.
#[test]
fn a_missing_runs_on_is_added() {
    let line = format!("    runs-on: {LIST}");
    check_edit("\"jobs\":\n  a:\n    steps: []\n", &format!("\"jobs\":\n  a:\n{line}\n    steps: []\n"));
    check_edit("jobs:\r\n  a:\r\n    steps: []\r\n", &format!("jobs:\r\n  a:\r\n{line}\r\n    steps: []\r\n"));
    let shadow = "jobs:\n  a:\n    steps:\n    - run: |\n        runs-on: []\n";
    check_edit(shadow, &shadow.replace("    steps", &format!("{line}\n    steps")));
}

/// NEW-161: what cannot be proven is refused, and so is a job that has labels.
#[test]
fn an_edit_without_proof_is_refused() {
    for payload in [
        "jobs: {a: {runs-on: [], steps: []}}",
        "jobs:\n  a: {runs-on: []}\n",
        "jobs:\n  a:\n    runs-on:\n      - ''\n    steps: []\n",
        "jobs:\n  a:\n    runs-on: [\n      ]\n    steps: []\n",
        "jobs:\n  a:\n    runs-on: &x []\n    steps: *x\n",
        "jobs:\n  a:\n    ? runs-on\n    : []\n    steps: []\n",
        "jobs:\n  a:\n    runs-on: pod\n",
    ] {
        let refusal = with_runs_on(payload.as_bytes(), &labels()).unwrap_err();
        assert_eq!(refusal.reason, Reason::UnsupportedLabels, "{payload}");
        assert!(refusal.remedy.contains("self-hosted, local"));
    }
    assert_eq!(with_runs_on(b"jobs: {}", &labels()).unwrap_err().reason, Reason::InvalidWorkflow);
}

proptest! {
    /// NEW-161, ENV-5: whatever the labels are and whatever stands around them, everything else of the text stays.
    #[test]
    fn only_runs_on_ever_changes(
        labels in proptest::collection::vec("[ -~]{0,3}[!-~\u{e4}\"\\\\#:\u{1}]{1,6}", 1..4),
        comment in "[ -~]{0,12}",
        script in proptest::collection::vec("[ -~]{0,20}", 0..6),
    ) {
        let script: String = script.iter().map(|line| format!("          {line}\n")).collect();
        let document = |value: &str| {
            format!("# {comment}\njobs:\n  a:\n    runs-on: {value}\n    steps:\n      - run: |\n          x\n{script}")
        };
        let edited = with_runs_on(document("[]").as_bytes(), &labels).unwrap();
        prop_assert_eq!(&Job::parse(&edited).unwrap().runs_on, &labels);
        let edited = String::from_utf8(edited).unwrap();
        let line = edited.lines().find(|line| line.starts_with("    runs-on: ")).unwrap().to_owned();
        prop_assert_eq!(edited.replacen(&line[13..], "[]", 1), document("[]"));
    }

    /// ENV-3, NEW-161: hostile bytes are refused or read, and never end the process.
    #[test]
    fn hostile_payloads_are_only_refused(
        payload in "(jobs:|runs-on:|a|[-{}\\[\\]&*!|>'\"#%@: \n\r\t~?,]|\u{feff}){0,40}",
    ) {
        let _refused = Job::parse(payload.as_bytes());
        if let Ok(edited) = with_runs_on(payload.as_bytes(), &labels()) {
            prop_assert_eq!(Job::parse(&edited).unwrap().runs_on, labels());
        }
    }
}
