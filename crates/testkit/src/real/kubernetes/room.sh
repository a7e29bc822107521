# Prepares the namespaces of a cluster from inside: "$1" its folder, "$2" the node's name, "$3" the node's address,
# "$4" the address of Service default/kubernetes.
set -eu
mount --make-rshared /
mount -t tmpfs tmpfs /run/containerd
mount -t tmpfs tmpfs /var/lib/cni
# etcd waits for the disk at each write; memory does not let it wait.
mount -t tmpfs -o mode=700 tmpfs "$1/etcd"
mount --bind "$1/kubelet" /var/lib/kubelet
mount --bind "$1/log/pods" /var/log/pods
mount --bind "$1/log/containers" /var/log/containers
# The kubelet would set these for the whole machine; it finds what it wants in files of ours.
for setting in vm/overcommit_memory=1 kernel/panic=10 kernel/panic_on_oops=1; do
  file="$1/run/sysctl/${setting%=*}"
  mkdir -p "${file%/*}"
  echo "${setting#*=}" > "$file"
  mount --bind "$file" "/proc/sys/${setting%=*}"
done
hostname "$2"
ip link set lo up
ip addr add "$3/30" dev eth0
ip link set eth0 up
# In-cluster clients find the API server without kube-proxy.
ip addr add "$4/32" dev lo
echo 1 > /proc/sys/net/ipv4/ip_forward
