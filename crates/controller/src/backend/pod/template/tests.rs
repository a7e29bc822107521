#![expect(clippy::unwrap_used, reason = "tests")]
use super::*;

#[track_caller]
fn refused(text: &str, words: &str) {
    let error = PodTemplate::parse(text).unwrap_err().to_string();
    assert!(error.contains(words), "{error}");
}

/// NEW-68, F68, T51: what a template may not touch is named with its place and what to do instead.
#[test]
fn fixed_fields_are_refused() {
    for (field, words) in [
        ("restartPolicy: Always", "spec.restartPolicy: it is fixed"),
        ("activeDeadlineSeconds: 1", "RUN_LIMIT"),
        ("terminationGracePeriodSeconds: 1", "terminationGracePeriodSeconds"),
        ("serviceAccountName: admin", "POD_SERVICE_ACCOUNT"),
        ("automountServiceAccountToken: true", "automountServiceAccountToken"),
        ("hostNetwork: true", "part of its node"),
        ("hostPID: true", "part of its node"),
        ("hostUsers: true", "spec.hostUsers"),
        ("nodeName: n1", "use nodeSelector"),
        ("shareProcessNamespace: true", "first process"),
        ("securityContext: {runAsUser: 0}", "POD_EXECUTOR_UID"),
        ("securityContext: {seccompProfile: {type: Unconfined}}", "seccompProfile"),
        ("volumes: [{name: capability, emptyDir: {}}]", "spec.volumes[capability]: it is ours"),
        ("volumes: [{name: home, hostPath: {path: /}}]", "spec.volumes[home]"),
        ("containers: [{name: executor, image: other}]", "spec.containers[executor].image"),
        ("containers: [{name: executor, args: [sh]}]", "spec.containers[executor].args"),
        ("containers: [{name: executor, securityContext: {privileged: true}}]", "PRIVILEGED_POLICY_FILE"),
        ("containers: [{name: executor, env: [{name: CI_SPIFFE_ID, value: x}]}]", "env[CI_SPIFFE_ID]"),
        ("containers: [{name: side, image: i, securityContext: {privileged: true}}]", "spec.containers[side]"),
        ("containers: [{name: side, image: i, securityContext: {runAsUser: 0}}]", "0 is root"),
        ("initContainers: [{name: i, image: i, securityContext: {capabilities: {add: [SYS_ADMIN]}}}]", "capabilities"),
        ("containers: [{name: side, image: i, volumeMounts: [{name: capability, mountPath: /x}]}]", "is ours"),
        ("containers: [{name: executor, volumeMounts: [{name: v, mountPath: /run}]}]", "would be hidden"),
        ("containers: [{name: executor, volumeMounts: [{name: v, mountPath: /home/runner}]}]", "would be hidden"),
    ] {
        refused(&format!("spec: {{{field}}}"), words);
    }
    refused("metadata: {name: x}", "metadata.name");
    refused("metadata: {labels: {ci.ddupan.top/instance: x}}", "ci.ddupan.top/instance");
    refused("metadata: {annotations: {karpenter.sh/do-not-disrupt: \"false\"}}", "karpenter.sh/do-not-disrupt");
}

/// NEW-68, CFG-2: a misspelt field is an error, and all that is wrong is told at once.
#[test]
fn nothing_is_dropped_without_a_word() {
    refused("spec: {tolerration: []}", "spec.tolerration: Kubernetes knows no such field");
    refused("spec: {containers: [{name: executor, resource: {}}]}", "spec.containers[0].resource");
    refused("spec: [", "no YAML");
    refused("spec: {containers: 5}", "no Pod template");
    let error = PodTemplate::parse("spec: {hostPID: true, hostIPC: true}").unwrap_err().to_string();
    assert!(error.contains("hostPID") && error.contains("hostIPC"), "{error}");
}

/// NEW-68: what a template is for comes into the Pod, beside the defaults that it does not name.
#[test]
fn what_it_adds_is_there() {
    let template = PodTemplate::parse(
        "metadata: {labels: {team: ci}}\nspec:\n  nodeSelector: {pool: ci}\n  tolerations: [{key: ci, operator: Exists}]\n  \
         imagePullSecrets: [{name: registry}]\n  volumes: [{name: home, emptyDir: {sizeLimit: 5Gi}}]\n  containers:\n  - name: \
         executor\n    resources: {limits: {memory: 8Gi}}\n  - name: side\n    image: i\n",
    )
    .unwrap();
    let spec = &template.value()["spec"];
    assert_eq!(
        spec["containers"][0]["resources"]["limits"],
        json!({"cpu": "2", "memory": "8Gi", "ephemeral-storage": "10Gi"})
    );
    assert_eq!(spec["containers"][1]["securityContext"]["capabilities"]["drop"], json!(["ALL"]));
    assert_eq!(spec["nodeSelector"]["pool"], "ci");
}

/// Lists of named things are laid over each other by their names, everything else as a whole.
#[test]
fn layers() {
    let mut under = json!({"a": {"x": 1, "y": 2}, "l": [{"name": "p", "v": 1}], "n": [1, 2]});
    lay_over(&mut under, json!({"a": {"y": null, "z": 3}, "l": [{"name": "p", "w": 2}, {"name": "q"}], "n": [3]}));
    assert_eq!(under, json!({"a": {"x": 1, "z": 3}, "l": [{"name": "p", "v": 1, "w": 2}, {"name": "q"}], "n": [3]}));
}
