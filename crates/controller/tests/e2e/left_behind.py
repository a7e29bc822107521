# Leaves behind what a job can leave behind: a daemon in a session of its own that ignores every polite signal, one with
# a terminal, and as many more as it is allowed. Prints how many it could start.
import os, pty, signal, sys, time


def stay():
    nothing = os.open("/dev/null", os.O_RDWR)
    for number in range(3):
        os.dup2(nothing, number)
    for polite in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(polite, signal.SIG_IGN)
    time.sleep(3600)
    os._exit(0)


if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        stay()
    os._exit(0)
if pty.fork()[0] == 0:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    time.sleep(3600)
started = []
try:
    while len(started) < 5000:
        child = os.fork()
        if child == 0:
            os.setpgid(0, 0)
            stay()
        started.append(child)
except BlockingIOError:
    pass
# Room for the runner itself to end the job in order.
for child in started[:30]:
    os.kill(child, signal.SIGKILL)
print("could start", len(started), flush=True)
os._exit(0)
