# A step that looks for other people's secrets in everything it can reach: files, processes, sockets, kernel rooms.
# Arguments: SINCE (older files are left out), ROOTS (comma list), PROGRAM, OTHER (another job's key), STATE (the state
# folder), then NAME=HEX for every marker. Markers are never in clear in its own environment, arguments or files.
# Prints one line per find, `HIT name: where`, and ends with 1 if there is any.
import ctypes, os, pwd, socket, stat, subprocess, sys

since, roots, program, other, state = float(sys.argv[1]), sys.argv[2].split(","), *sys.argv[3:6]
markers = {name: bytes.fromhex(text) for name, text in (word.split("=", 1) for word in sys.argv[6:])}
LIMIT = 16 << 20
hits, seen, sockets = set(), {"files": 0, "processes": 0, "sockets": 0}, set()


def judge(where, content):
    hits.update((name, where) for name, marker in markers.items() if marker in content)


def read(path, kind):
    try:
        with open(path, "rb") as file:
            judge(path, file.read(LIMIT))
            seen[kind] += 1
    except (OSError, ValueError):
        pass


def walk(root):
    for folder, folders, files in os.walk(root):
        if folder == "/":
            folders[:] = [name for name in folders if name not in ("proc", "sys")]
        for name in files:
            path = os.path.join(folder, name)
            try:
                info = os.lstat(path)
            except OSError:
                continue
            if stat.S_ISSOCK(info.st_mode):
                sockets.add(path)
            elif stat.S_ISREG(info.st_mode) and info.st_mtime >= since:
                read(path, "files")


def memory(process):
    try:
        with open(f"{process}/maps") as maps, open(f"{process}/mem", "rb", 0) as mem:
            for line in maps:
                span, rights = line.split()[:2]
                begin, end = (int(part, 16) for part in span.split("-"))
                if rights.startswith("rw") and end - begin <= LIMIT:
                    try:
                        mem.seek(begin)
                        judge(f"{process}/mem", mem.read(end - begin))
                    except (OSError, ValueError):
                        pass
    except OSError:
        pass


def processes():
    for number in filter(str.isdigit, os.listdir("/proc")):
        process = f"/proc/{number}"
        if int(number) == os.getpid():
            continue
        for file in ("environ", "cmdline", "comm", "maps"):
            read(f"{process}/{file}", "processes")
        memory(process)
        for link in ("root", "cwd"):
            for secret in ("registration.json", "keys/ca.json", "keys/envelope.key", "queue.db"):
                read(f"{process}/{link}{state}/{secret}", "files")
            for folder in ("/tmp", "/var/tmp", "/dev/shm", ""):
                try:
                    for name in os.listdir(f"{process}/{link}{folder}"):
                        read(f"{process}/{link}{folder}/{name}", "files")
                except OSError:
                    pass
        try:
            for number in os.listdir(f"{process}/fd"):
                path = f"{process}/fd/{number}"
                if stat.S_ISREG(os.stat(path).st_mode):
                    read(path, "files")
        except OSError:
            pass


def abstract():
    with open("/proc/net/unix") as table:
        names = [line.split()[7] for line in table if len(line.split()) > 7]
    sockets.update(name for name in names if name.startswith("/"))
    for name in (name for name in names if name.startswith("@")):
        try:
            with socket.socket(socket.AF_UNIX) as client:
                client.settimeout(0.2)
                client.connect("\0" + name[1:])
                seen["sockets"] += 1
                judge(name, client.recv(4096))
        except OSError:
            pass


def identities():
    for path in sorted(sockets):
        try:
            with socket.socket(socket.AF_UNIX) as client:
                client.settimeout(1)
                client.connect(path)
                seen["sockets"] += 1
        except OSError:
            continue
        environment = {"SPIFFE_ENDPOINT_SOCKET": f"unix://{path}", "PATH": "/usr/bin:/bin"}
        answer = subprocess.run([program, "svid", "--timeout", "2"], capture_output=True, env=environment)
        if f"/{other}".encode() in answer.stdout or b"/gitea-dynamic-runner\n" in answer.stdout:
            hits.add(("svid", path))


def escapes():
    look = f"cat {state}/registration.json {state}/keys/*; ls -a {state} {state}/executors; cat /proc/[0-9]*/environ"
    for words in (
        ["sh", "-c", f"umount -l {state}; umount -l /proc; {look}"],
        ["unshare", "-Urmp", "-f", "sh", "-c", f"umount -l {state}; umount -l /proc; mount -t proc p /proc; {look}"],
        ["unshare", "-Urm", "sh", "-c", f"mount --bind / /mnt; chroot /mnt sh -c '{look}'"],
        ["nsenter", "-t", "1", "-a", "sh", "-c", look],
        ["sudo", "-n", "sh", "-c", look],
    ):
        try:
            answer = subprocess.run(words, capture_output=True, timeout=20, stdin=subprocess.DEVNULL)
            judge(" ".join(words[:3]), answer.stdout + answer.stderr)
        except (OSError, subprocess.TimeoutExpired):
            pass


def keys():
    # A key in the ring of the uid is there for its next job.
    add_key = {"x86_64": 248, "aarch64": 217}[os.uname().machine]
    if ctypes.CDLL(None).syscall(add_key, b"user", b"gdr-hostile-step", b"x", ctypes.c_size_t(1), -4) != -1:
        hits.add(("kernel-key", "the key ring of the user"))


def name():
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return None


for root in roots:
    walk(root)
processes()
abstract()
identities()
escapes()
keys()
print("looked at", seen, "as", os.getuid(), "named", name(), "processes", sorted(p for p in os.listdir("/proc") if p.isdigit()))
for marker, where in sorted(hits):
    print(f"HIT {marker}: {where}")
sys.exit(1 if hits else 0)
