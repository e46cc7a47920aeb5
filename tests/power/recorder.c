/* Preloaded with LD_PRELOAD: records the file system calls of a process and its libraries.
 *
 * Environment:
 *   RECORDER_LOG    file to which one line per call is appended
 *   RECORDER_ROOT   only files below this folder are recorded
 *   RECORDER_VAULT  folder on the same file system; every file that gets a name is linked there
 *                   under its inode number, so that its content stays and no number is reused
 *   RECORDER_FLUSH_US  microseconds that every fsync and fdatasync of any file takes longer
 *
 * A line is: call, inode, size, path, second path; separated by tabs. Opening a path that begins
 * with /recorder-mark/ records a mark.
 *
 * One thread at a time names or flushes files. Otherwise a thread could create a folder, another
 * one flush the folder above, and the log have both in the other order.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#define LONGEST (PATH_MAX * 2)
#define MARK "/recorder-mark/"

static int log_fd = -1;
static const char *root, *vault;
static long flush_us;
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;

static void take_turn(void) { pthread_mutex_lock(&turn); }
static void end_turn(void) { pthread_mutex_unlock(&turn); }

__attribute__((constructor)) static void begin(void) {
    const char *name = getenv("RECORDER_LOG"), *wait = getenv("RECORDER_FLUSH_US");
    root = getenv("RECORDER_ROOT");
    vault = getenv("RECORDER_VAULT");
    flush_us = wait ? atol(wait) : 0;
    pthread_atfork(take_turn, end_turn, end_turn);
    if (name)
        log_fd = syscall(SYS_openat, AT_FDCWD, name, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
}

#define REAL(type, name, ...) \
    static type (*real)(__VA_ARGS__); \
    if (!real) real = (type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

static int is_recorded(const char *path) {
    return log_fd >= 0 && root && strncmp(path, root, strlen(root)) == 0;
}

static void record(const char *call, unsigned long inode, long size, const char *path, const char *to) {
    char line[LONGEST * 2];
    int length = snprintf(line, sizeof line, "%s\t%lu\t%ld\t%s\t%s\n", call, inode, size, path, to);
    if (log_fd >= 0 && length > 0 && syscall(SYS_write, log_fd, line, (size_t)length) < 0) abort();
}

static void path_of_fd(int fd, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    path[length > 0 ? length : 0] = 0;
}

static void absolute(int folder, const char *name, char *path) {
    path[0] = 0;
    if (name[0] != '/') {
        if (folder != AT_FDCWD) path_of_fd(folder, path);
        else if (!getcwd(path, PATH_MAX)) path[0] = 0;
        strncat(path, "/", PATH_MAX - strlen(path) - 1);
    }
    strncat(path, name, PATH_MAX - strlen(path) - 1);
}

/* Record a write or a flush of a file that is given by its descriptor. */
static void on_fd(const char *call, int fd) {
    int before = errno;
    char path[PATH_MAX];
    struct stat found;
    path_of_fd(fd, path);
    if (is_recorded(path) && fstat(fd, &found) == 0)
        record(call, found.st_ino, S_ISDIR(found.st_mode) ? -1 : found.st_size, path, "");
    errno = before;
}

/* Record a new name of a file, and keep its content in the vault. */
static void on_name(const char *call, const char *path, const char *from) {
    int before = errno;
    struct stat found;
    if (lstat(path, &found) == 0) {
        int is_folder = S_ISDIR(found.st_mode);
        record(call, is_folder ? 0 : found.st_ino, is_folder ? -1 : found.st_size, path, from);
        if (vault && S_ISREG(found.st_mode)) {
            char kept[LONGEST];
            snprintf(kept, sizeof kept, "%s/%lu", vault, (unsigned long)found.st_ino);
            syscall(SYS_linkat, AT_FDCWD, path, AT_FDCWD, kept, 0);
        }
    }
    errno = before;
}

static void on_open(int folder, const char *name, int flags, int result) {
    char path[PATH_MAX];
    if (log_fd < 0) return;
    if (strncmp(name, MARK, strlen(MARK)) == 0) {
        record("mark", 0, 0, name + strlen(MARK), "");
        return;
    }
    if (result < 0 || !(flags & (O_CREAT | O_TRUNC)) || (flags & O_TMPFILE) == O_TMPFILE) return;
    int before = errno;
    absolute(folder, name, path);
    if (is_recorded(path)) on_name(flags & O_TRUNC ? "truncate" : "create", path, "");
    errno = before;
}

#define MODE(flags) \
    mode_t mode = 0; \
    if ((flags) & (O_CREAT | O_TMPFILE)) { \
        va_list more; \
        va_start(more, flags); \
        mode = va_arg(more, mode_t); \
        va_end(more); \
    }

int open(const char *name, int flags, ...) {
    REAL(int, "open", const char *, int, ...);
    MODE(flags)
    int result = real(name, flags, mode);
    on_open(AT_FDCWD, name, flags, result);
    return result;
}

int open64(const char *name, int flags, ...) {
    REAL(int, "open64", const char *, int, ...);
    MODE(flags)
    int result = real(name, flags, mode);
    on_open(AT_FDCWD, name, flags, result);
    return result;
}

int openat(int folder, const char *name, int flags, ...) {
    REAL(int, "openat", int, const char *, int, ...);
    MODE(flags)
    int result = real(folder, name, flags, mode);
    on_open(folder, name, flags, result);
    return result;
}

int openat64(int folder, const char *name, int flags, ...) {
    REAL(int, "openat64", int, const char *, int, ...);
    MODE(flags)
    int result = real(folder, name, flags, mode);
    on_open(folder, name, flags, result);
    return result;
}

int creat(const char *name, mode_t mode) { return open(name, O_CREAT | O_WRONLY | O_TRUNC, mode); }

#define WRITING(type, name, fd, parameters, arguments, ...) \
    type name parameters { \
        REAL(type, #name, __VA_ARGS__); \
        type result = real arguments; \
        if (result >= 0 && log_fd >= 0) on_fd("write", fd); \
        return result; \
    }

WRITING(ssize_t, write, fd, (int fd, const void *data, size_t size), (fd, data, size), int, const void *, size_t)
WRITING(ssize_t, pwrite, fd, (int fd, const void *data, size_t size, off_t at), (fd, data, size, at), int, const void *, size_t, off_t)
WRITING(ssize_t, pwrite64, fd, (int fd, const void *data, size_t size, off64_t at), (fd, data, size, at), int, const void *, size_t, off64_t)
WRITING(ssize_t, writev, fd, (int fd, const struct iovec *parts, int count), (fd, parts, count), int, const struct iovec *, int)
WRITING(ssize_t, sendfile, to, (int to, int from, off_t *at, size_t size), (to, from, at, size), int, int, off_t *, size_t)
WRITING(ssize_t, sendfile64, to, (int to, int from, off64_t *at, size_t size), (to, from, at, size), int, int, off64_t *, size_t)
WRITING(ssize_t, copy_file_range, to, (int from, off64_t *first, int to, off64_t *second, size_t size, unsigned flags), (from, first, to, second, size, flags), int, off64_t *, int, off64_t *, size_t, unsigned)
WRITING(int, ftruncate, fd, (int fd, off_t size), (fd, size), int, off_t)
WRITING(int, ftruncate64, fd, (int fd, off64_t size), (fd, size), int, off64_t)

#define FLUSHING(name) \
    int name(int fd) { \
        REAL(int, #name, int); \
        if (flush_us) usleep(flush_us); \
        take_turn(); \
        int result = real(fd); \
        if (result == 0 && log_fd >= 0) on_fd("flush", fd); \
        end_turn(); \
        return result; \
    }

FLUSHING(fsync)
FLUSHING(fdatasync)

static void on_link(int folder, const char *name, int result) {
    char path[PATH_MAX];
    if (result != 0 || log_fd < 0) return;
    absolute(folder, name, path);
    if (is_recorded(path)) on_name("link", path, "");
}

int link(const char *from, const char *to) {
    REAL(int, "link", const char *, const char *);
    take_turn();
    int result = real(from, to);
    on_link(AT_FDCWD, to, result);
    end_turn();
    return result;
}

int linkat(int folder, const char *from, int other, const char *to, int flags) {
    REAL(int, "linkat", int, const char *, int, const char *, int);
    take_turn();
    int result = real(folder, from, other, to, flags);
    on_link(other, to, result);
    end_turn();
    return result;
}

static void on_rename(int folder, const char *from, int other, const char *to, int result) {
    char old[PATH_MAX], path[PATH_MAX];
    if (result != 0 || log_fd < 0) return;
    absolute(folder, from, old);
    absolute(other, to, path);
    if (is_recorded(path) || is_recorded(old)) on_name("rename", path, old);
}

int rename(const char *from, const char *to) {
    REAL(int, "rename", const char *, const char *);
    take_turn();
    int result = real(from, to);
    on_rename(AT_FDCWD, from, AT_FDCWD, to, result);
    end_turn();
    return result;
}

int renameat(int folder, const char *from, int other, const char *to) {
    REAL(int, "renameat", int, const char *, int, const char *);
    take_turn();
    int result = real(folder, from, other, to);
    on_rename(folder, from, other, to, result);
    end_turn();
    return result;
}

int renameat2(int folder, const char *from, int other, const char *to, unsigned flags) {
    REAL(int, "renameat2", int, const char *, int, const char *, unsigned);
    take_turn();
    int result = real(folder, from, other, to, flags);
    on_rename(folder, from, other, to, result);
    end_turn();
    return result;
}

static void on_gone(int folder, const char *name, int result) {
    char path[PATH_MAX];
    if (result != 0 || log_fd < 0) return;
    absolute(folder, name, path);
    if (is_recorded(path)) record("unlink", 0, 0, path, "");
}

int unlink(const char *name) {
    REAL(int, "unlink", const char *);
    take_turn();
    int result = real(name);
    on_gone(AT_FDCWD, name, result);
    end_turn();
    return result;
}

int unlinkat(int folder, const char *name, int flags) {
    REAL(int, "unlinkat", int, const char *, int);
    take_turn();
    int result = real(folder, name, flags);
    on_gone(folder, name, result);
    end_turn();
    return result;
}

int remove(const char *name) {
    REAL(int, "remove", const char *);
    take_turn();
    int result = real(name);
    on_gone(AT_FDCWD, name, result);
    end_turn();
    return result;
}

int rmdir(const char *name) {
    REAL(int, "rmdir", const char *);
    take_turn();
    int result = real(name);
    on_gone(AT_FDCWD, name, result);
    end_turn();
    return result;
}

static void on_folder(int folder, const char *name, int result) {
    char path[PATH_MAX];
    if (result != 0 || log_fd < 0) return;
    absolute(folder, name, path);
    if (is_recorded(path)) record("mkdir", 0, -1, path, "");
}

int mkdir(const char *name, mode_t mode) {
    REAL(int, "mkdir", const char *, mode_t);
    take_turn();
    int result = real(name, mode);
    on_folder(AT_FDCWD, name, result);
    end_turn();
    return result;
}

int mkdirat(int folder, const char *name, mode_t mode) {
    REAL(int, "mkdirat", int, const char *, mode_t);
    take_turn();
    int result = real(folder, name, mode);
    on_folder(folder, name, result);
    end_turn();
    return result;
}
