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

/// NEW-68, F68, T51: a place that is ours is known however it is written, and one that only looks like it is free.
#[test]
fn a_path_is_read_as_it_is_mounted() {
    let mounts = |path: &str| {
        format!("spec: {{containers: [{{name: executor, volumeMounts: [{{name: v, mountPath: {path}}}]}}]}}")
    };
    for path in [
        "/run//gitea-dynamic-runner",
        "/run/./spire",
        "//run/spire/./agent-sockets//spire-agent.sock",
        "/./home/runner/.",
        "/.",
        "/",
        "/x/../run",
        "/x/..",
        "tmp",
    ] {
        refused(&mounts(path), "would be hidden");
    }
    for path in [
        "/run/spire-of-ours",
        "/run/spire/agent-sockets-of-ours",
        "/run/.spire",
        "/cache//of/./jobs",
        "/home/runner/.cache",
    ] {
        PodTemplate::parse(&mounts(path)).unwrap();
    }
}

/// NEW-68, NEW-69, F66, F67, T51: nothing that a template may have gets around a fixed field: no token of the cluster, no
/// folder of the node, no confinement or group taken away.
#[test]
fn nothing_gets_around_a_fixed_field() {
    for (field, words) in [
        ("volumes: [{name: v, hostPath: {path: /}}]", "spec.volumes[v].hostPath: no job has a part of its node"),
        (
            "volumes: [{name: v, projected: {sources: [{configMap: {name: c}}, {serviceAccountToken: {path: t}}]}}]",
            "spec.volumes[v].projected.serviceAccountToken",
        ),
        (
            "volumes: [{name: v, projected: {sources: [{podCertificate: {signerName: s, keyType: ED25519}}]}}]",
            "spec.volumes[v].projected.podCertificate",
        ),
        ("securityContext: {appArmorProfile: {type: Unconfined}}", "spec.securityContext.appArmorProfile: Unconfined"),
        ("securityContext: {seLinuxOptions: {type: spc_t}}", "spec.securityContext.seLinuxOptions.type"),
        ("securityContext: {seLinuxOptions: {user: u, role: r}}", "spec.securityContext.seLinuxOptions.role"),
        ("securityContext: {supplementalGroups: [5, 0]}", "spec.securityContext.supplementalGroups: 0"),
        (
            "containers: [{name: executor, securityContext: {appArmorProfile: {type: Unconfined}}}]",
            "spec.containers[executor].securityContext.appArmorProfile",
        ),
        (
            "initContainers: [{name: i, image: i, securityContext: {seLinuxOptions: {type: spc_t}}}]",
            "spec.initContainers[i].securityContext.seLinuxOptions.type",
        ),
        ("containers: [{name: side, image: i, securityContext: {runAsGroup: 0}}]", "runAsGroup: 0"),
    ] {
        refused(&format!("spec: {{{field}}}"), words);
    }
    refused(
        "metadata: {annotations: {container.apparmor.security.beta.kubernetes.io/executor: unconfined}}",
        "use securityContext.appArmorProfile",
    );
}

/// NEW-68: what narrows a job further, and volumes that give it nothing of the node or the cluster, stay possible.
#[test]
fn what_narrows_is_taken() {
    PodTemplate::parse(
        "spec:\n  securityContext:\n    appArmorProfile: {type: RuntimeDefault}\n    seLinuxOptions: {level: 's0:c1,c2'}\n    \
         supplementalGroups: [3000]\n  volumes:\n  - name: v\n    projected: {sources: [{configMap: {name: c}}]}\n  - name: \
         cache\n    persistentVolumeClaim: {claimName: c}\n  containers:\n  - name: executor\n    securityContext: \
         {appArmorProfile: {type: Localhost, localhostProfile: ci}}\n",
    )
    .unwrap();
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
