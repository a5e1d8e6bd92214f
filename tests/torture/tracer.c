/* Runs a stopped child under ptrace and counts its system calls that change files below one folder; the n-th of them
   meets a fault. System calls are real ones, whoever makes them: Python, native code, threads, processes it starts.
   x86-64 Linux only. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

enum { COUNT, KILL, TORN, ONCE, FROM_HERE, SHORT }; /* what the n-th call meets; as in tracing.py */
enum { ON_FD, ON_PATH, ON_AT, ON_TWO_PATHS, ON_TWO_AT };
#define FILES 4096

typedef struct {
    int number, where, data; /* data: its third argument is a number of bytes to write */
    int grows;               /* may fail for want of room */
    const char *name;
} Call;

static const Call CALLS[] = {
    {SYS_write, ON_FD, 1, 1, "write"},
    {SYS_pwrite64, ON_FD, 1, 1, "pwrite"},
    {SYS_writev, ON_FD, 0, 1, "writev"},
    {SYS_fsync, ON_FD, 0, 1, "fsync"},
    {SYS_fdatasync, ON_FD, 0, 1, "fdatasync"},
    {SYS_ftruncate, ON_FD, 0, 0, "ftruncate"},
    {SYS_fallocate, ON_FD, 0, 1, "fallocate"},
    {SYS_fchmod, ON_FD, 0, 0, "fchmod"},
    {SYS_sendfile, ON_FD, 0, 1, "sendfile"},
    {SYS_open, ON_PATH, 0, 1, "open"},
    {SYS_openat, ON_AT, 0, 1, "open"},
    {SYS_mkdir, ON_PATH, 0, 1, "mkdir"},
    {SYS_mkdirat, ON_AT, 0, 1, "mkdir"},
    {SYS_rename, ON_TWO_PATHS, 0, 1, "rename"},
    {SYS_renameat, ON_TWO_AT, 0, 1, "rename"},
    {SYS_renameat2, ON_TWO_AT, 0, 1, "rename"},
    {SYS_link, ON_TWO_PATHS, 0, 1, "link"},
    {SYS_linkat, ON_TWO_AT, 0, 1, "link"},
    {SYS_unlink, ON_PATH, 0, 0, "unlink"},
    {SYS_unlinkat, ON_AT, 0, 0, "unlink"},
    {SYS_rmdir, ON_PATH, 0, 0, "rmdir"},
    {SYS_chmod, ON_PATH, 0, 0, "chmod"},
    {SYS_fchmodat, ON_AT, 0, 0, "chmod"},
    {SYS_utimensat, ON_AT, 0, 0, "utime"},
};
#define N_CALLS (int)(sizeof CALLS / sizeof *CALLS)

typedef struct { /* a file whose last bytes may not be on disk yet */
    unsigned long device, inode;
    long synced; /* bytes that are */
    int dirty;
} File;

typedef struct { /* as in tracing.py */
    int kind;    /* of the fault */
    int error;   /* errno */
    long at;     /* which call meets it, from 1 */
    long count;  /* calls so far */
    int fired, status, n_files;
    char what[32], path[PATH_MAX];
    File files[FILES];
    char *log; /* where to append a line per call, if anywhere */
    void (*before)(void); /* called while the child stands before the call that was counted last, if anything */
} Report;

/* To be called in the child: from here on the calls above stop it for the tracer. */
int stop_for_tracer(void) {
    struct sock_filter program[2 * N_CALLS + 6];
    int n = 0;
    program[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (int i = 0; i < N_CALLS; i++) {
        program[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, CALLS[i].number, 0, 1);
        program[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE);
    }
    program[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog filter = {n, program};
    if (ptrace(PTRACE_TRACEME, 0, 0, 0) || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return errno;
    raise(SIGSTOP);
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) ? errno : 0;
}

static void read_text(pid_t pid, unsigned long address, char *text, size_t size) {
    size_t done = 0;
    while (done < size - 1) { /* page by page: the next one may not be there */
        size_t most = 4096 - (address + done) % 4096;
        if (most > size - 1 - done) most = size - 1 - done;
        struct iovec to = {text + done, most}, from = {(void *)(address + done), most};
        ssize_t got = process_vm_readv(pid, &to, 1, &from, 1, 0);
        if (got <= 0) break;
        if (memchr(text + done, 0, got)) return;
        done += got;
    }
    text[done] = 0;
}

static void of_fd(pid_t pid, int fd, char *path) {
    char link[64];
    if (fd == AT_FDCWD) snprintf(link, sizeof link, "/proc/%d/cwd", pid);
    else snprintf(link, sizeof link, "/proc/%d/fd/%d", pid, fd);
    ssize_t n = readlink(link, path, PATH_MAX - 1);
    path[n < 0 ? 0 : n] = 0;
}

static void resolve(pid_t pid, int base, unsigned long address, char *path) {
    char name[PATH_MAX], folder[PATH_MAX];
    name[0] = 0;
    if (address) read_text(pid, address, name, sizeof name);
    if (name[0] == '/') { memcpy(path, name, sizeof name); return; }
    of_fd(pid, base, folder);
    if (!name[0]) memcpy(path, folder, sizeof folder);
    else if (snprintf(path, PATH_MAX, "%s/%s", folder, name) >= PATH_MAX) path[0] = 0;
}

/* The path that a call is about, the new one of two; whether the call changes files at all. */
static int find_path(pid_t pid, const Call *call, const struct user_regs_struct *r, char *path) {
    long flags = O_CREAT | O_TRUNC;
    switch (call->where) {
    case ON_FD: of_fd(pid, (int)r->rdi, path); return 1;
    case ON_PATH: resolve(pid, AT_FDCWD, r->rdi, path); return call->number != SYS_open || (r->rsi & flags);
    case ON_AT: resolve(pid, (int)r->rdi, r->rsi, path); return call->number != SYS_openat || (r->rdx & flags);
    case ON_TWO_PATHS: resolve(pid, AT_FDCWD, r->rsi, path); return 1;
    default: resolve(pid, (int)r->rdx, r->r10, path); return 1;
    }
}

/* Mutates: which bytes of a file are on disk, were the power cut after this call. */
static void note_file(Report *report, pid_t pid, const Call *call, int fd) {
    char link[64];
    struct stat now;
    snprintf(link, sizeof link, "/proc/%d/fd/%d", pid, fd);
    if (stat(link, &now) || !S_ISREG(now.st_mode)) return;
    int i = 0;
    while (i < report->n_files && !(report->files[i].inode == now.st_ino && report->files[i].device == now.st_dev)) i++;
    if (i == FILES) return;
    File *file = &report->files[i];
    if (i == report->n_files) {
        report->n_files++;
        *file = (File){now.st_dev, now.st_ino, now.st_size, 0};
    }
    int sync = call->number == SYS_fsync || call->number == SYS_fdatasync;
    if (sync) file->synced = now.st_size;
    else if (file->synced > now.st_size) file->synced = now.st_size;
    file->dirty = !sync;
}

static void note_call(Report *report, const Call *call, const char *path) {
    if (report->log == NULL) return;
    FILE *log = fopen(report->log, "a");
    if (log == NULL) return;
    int dirty = 0; /* files that would lose something if the power were cut before this call */
    for (int i = 0; i < report->n_files; i++) dirty += report->files[i].dirty;
    fprintf(log, "%s\t%d\t%s\n", call->name, dirty, path);
    fclose(log);
}

/* The child stands before a system call: count it, and if it is its turn, let it meet the fault. 1: it goes on to the
   end of the call and dies then. */
static int meet(pid_t pid, const char *root, Report *report) {
    struct user_regs_struct r;
    char path[PATH_MAX];
    if (ptrace(PTRACE_GETREGS, pid, 0, &r)) return 0;
    const Call *call = NULL;
    for (int i = 0; i < N_CALLS && !call; i++)
        if (CALLS[i].number == (int)r.orig_rax) call = &CALLS[i];
    if (!call || !find_path(pid, call, &r, path) || strncmp(path, root, strlen(root))) return 0;
    int full = report->kind == FROM_HERE && report->fired && call->grows;
    int turn = ++report->count == report->at;
    note_call(report, call, path);
    if (report->before) report->before();
    if (turn) {
        report->fired = 1;
        snprintf(report->what, sizeof report->what, "%s", call->name);
        memcpy(report->path, path, sizeof path);
    }
    if (turn && report->kind == KILL) { kill(pid, SIGKILL); return 0; }
    if ((turn && (report->kind == ONCE || (report->kind == FROM_HERE && call->grows))) || full) {
        r.orig_rax = -1; /* is left out, and seems to have failed */
        r.rax = -report->error;
        ptrace(PTRACE_SETREGS, pid, 0, &r);
        return 0;
    }
    if (call->where == ON_FD) note_file(report, pid, call, (int)r.rdi);
    if (turn && (report->kind == SHORT || report->kind == TORN) && call->data && r.rdx > 1) {
        r.rdx /= 2;
        ptrace(PTRACE_SETREGS, pid, 0, &r);
    }
    return turn && report->kind == TORN;
}

/* Runs the child until it and all that it started have ended; its status is in the report. */
int trace(pid_t child, const char *root, Report *report) {
    int status;
    if (waitpid(child, &status, 0) < 0) return errno;
    if (!WIFSTOPPED(status)) { report->status = status; return 0; }
    long options = PTRACE_O_TRACESECCOMP | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK |
                   PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL;
    if (ptrace(PTRACE_SETOPTIONS, child, 0, options)) return errno;
    ptrace(PTRACE_CONT, child, 0, 0);
    for (;;) {
        pid_t pid = waitpid(-1, &status, __WALL);
        if (pid < 0) return errno == ECHILD ? 0 : errno;
        if (WIFEXITED(status) || WIFSIGNALED(status)) {
            if (pid == child) report->status = status;
            continue;
        }
        int stop = WSTOPSIG(status), next = PTRACE_CONT, pass = 0;
        if (status >> 16 == PTRACE_EVENT_SECCOMP) {
            if (meet(pid, root, report)) next = PTRACE_SYSCALL;
        } else if (stop == (SIGTRAP | 0x80)) {
            kill(child, SIGKILL); /* the torn call has returned */
        } else if (status >> 16 == 0 && stop != SIGSTOP && stop != SIGTRAP) {
            pass = stop;
        }
        ptrace(next, pid, 0, pass);
    }
}
