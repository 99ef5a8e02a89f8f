/* Linked with compat/source/close.c: whatever closes a number by close, dup2, dup3 or close_range is seen, in this
 * program and in a library that knows nothing of it. Row 30. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <winsock2.h>
#include <mswsock.h>
#include <windows.h>

#include <completion_port.h>

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "check.h"

int close_range(unsigned first, unsigned last, int flags); /* <unistd.h> has it since glibc 2.34 */

/* In another library: closes a number by its own call of close. */
int close_elsewhere(int descriptor);

static HANDLE port;

/* A socket created by the library, which trusts its reads. */
static SOCKET registered_socket(void)
{
    SOCKET s = udp_socket();
    set_nonblocking(s);
    CHECK_IS(enable(port, s, 1, FILTER_IN, LEVEL_ONCE), ERROR_SUCCESS);
    send_to_itself(s);
    CHECK_NEXT(port, 1, SOCK_NOTIFY_EVENT_IN);
    drain(s);
    return s;
}

enum { BY_CLOSE, BY_CLOSE_ELSEWHERE, BY_DUP2, BY_DUP3, BY_CLOSE_RANGE, WAYS };

/* Another socket takes the number. */
static void replace(SOCKET s, int way)
{
    SOCKET next;
    if (way == BY_DUP2 || way == BY_DUP3) {
        next = unseen_socket();
        CHECK_IS(way == BY_DUP2 ? dup2((int)next, (int)s) : dup3((int)next, (int)s, O_CLOEXEC), (int)s);
        CHECK_IS(syscall(SYS_close, next), 0);
        return;
    }
    if (way == BY_CLOSE) {
        CHECK_IS(close((int)s), 0);
    } else if (way == BY_CLOSE_ELSEWHERE) {
        CHECK_IS(close_elsewhere((int)s), 0);
    } else {
        CHECK_IS(close_range((unsigned)s, (unsigned)s, 0), 0);
    }
    next = unseen_socket();
    CHECK_IS(next, s);
}

static void what_a_read_found_is_not_believed_of_the_next_socket(void)
{
    int way, has_read;
    for (way = 0; way < WAYS; way++) {
        for (has_read = 0; has_read < 2; has_read++) {
            SOCKET s = registered_socket();
            replace(s, way);
            if (has_read) {
                drain(s);
            }
            CHECK_IS(enable(port, s, 2, FILTER_IN, LEVEL_ONCE), ERROR_SUCCESS);
            send_to_itself(s);
            CHECK_NEXT(port, 2, SOCK_NOTIFY_EVENT_IN);
            END_REGISTRATION(port, s, 2);
            CHECK_IS(closesocket(s), 0);
        }
    }
    CHECK(is_silent(port));
}

/* A socket with this number, above all that the process and the library have open. */
static SOCKET socket_at(int number)
{
    SOCKET s = unseen_socket();
    CHECK_IS(dup2((int)s, number), number);
    CHECK_IS(close((int)s), 0);
    return (SOCKET)number;
}

/* They are the system's calls otherwise. */
static void they_do_what_the_system_does(void)
{
    SOCKET s = socket_at(200), t = socket_at(201), u = socket_at(202);
    CHECK(close(-1) == -1 && errno == EBADF);
    CHECK(close(0x7FFFFFFF) == -1 && errno == EBADF);
    CHECK_IS(dup2((int)s, (int)s), (int)s);
    CHECK(dup2(0x7FFFFFFF, 0x7FFFFFFF) == -1 && errno == EBADF);
    CHECK(dup2((int)s, -1) == -1 && errno == EBADF);
    CHECK(dup3((int)s, (int)s, 0) == -1 && errno == EINVAL);
    CHECK_IS(dup3((int)s, (int)t, O_CLOEXEC), (int)t);
    CHECK_IS(fcntl((int)t, F_GETFD), FD_CLOEXEC);
    CHECK_IS(dup2((int)s, (int)t), (int)t);
    CHECK_IS(fcntl((int)t, F_GETFD), 0);
    CHECK(close_range((unsigned)u, (unsigned)t, 0) == -1 && errno == EINVAL);
    CHECK_IS(close_range((unsigned)t, ~0U, 0), 0);
    CHECK(fcntl((int)t, F_GETFD) == -1 && fcntl((int)u, F_GETFD) == -1);
    CHECK_IS(close((int)s), 0);
    CHECK(close((int)s) == -1 && errno == EBADF);
}

/* What a child closes that shares this memory, or has a copy of it, is open here. */
static void what_a_child_closes_goes_on_here(void)
{
    SOCKET s = registered_socket();
    int is_forked, i, status;
    for (is_forked = 0; is_forked < 2; is_forked++) {
        pid_t child = is_forked ? fork() : vfork();
        CHECK(child >= 0);
        if (child == 0) {
            _exit(close((int)s) != 0 || dup2(2, (int)s) != (int)s || close_range(3, ~0U, 0) != 0);
        }
        CHECK_IS(waitpid(child, &status, 0), child);
        CHECK_IS(status, 0);
        for (i = 0; i < 3; i++) {
            CHECK_IS(enable(port, s, 2, FILTER_IN, LEVEL_ONCE), ERROR_SUCCESS);
            send_to_itself(s);
            CHECK_NEXT(port, 1, SOCK_NOTIFY_EVENT_IN);
            drain(s);
        }
    }
    END_REGISTRATION(port, s, 1);
    CHECK_IS(closesocket(s), 0);
}

/* ---- locks ------------------------------------------------------------------------------------------ */

static SOCKET shared, twin;
static volatile sig_atomic_t handled;

static void replaces_it_by_itself(int signal)
{
    int before = errno;
    (void)signal;
    if (dup2((int)twin, (int)shared) != (int)shared || dup3((int)twin, (int)shared, 0) != (int)shared ||
        close(-1) != -1) {
        _exit(3);
    }
    handled++;
    errno = before;
}

static pthread_t interrupted;

static void *interrupts(void *unused)
{
    int rounds = is_slow() ? 20 : 400;
    (void)unused;
    while (handled < rounds) {
        CHECK_IS(pthread_kill(interrupted, SIGUSR1), 0);
        usleep(100);
    }
    return NULL;
}

/* A handler may interrupt the library wherever it is, and close the number that it is busy with. */
static void a_signal_handler_may_close(void)
{
    struct sigaction action;
    pthread_t thread;
    int rounds = is_slow() ? 20 : 400;
    memset(&action, 0, sizeof action);
    shared = registered_socket();
    twin = (SOCKET)fcntl((int)shared, F_DUPFD, 0);
    action.sa_handler = replaces_it_by_itself;
    action.sa_flags = SA_RESTART;
    CHECK_IS(sigaction(SIGUSR1, &action, NULL), 0);
    interrupted = pthread_self();
    CHECK_IS(pthread_create(&thread, NULL, interrupts, NULL), 0);
    while (handled < rounds) {
        CHECK_IS(enable(port, shared, 1, FILTER_IN, LEVEL_ONCE), ERROR_SUCCESS);
        CHECK_IS(disable(port, shared), ERROR_SUCCESS);
    }
    CHECK_IS(pthread_join(thread, NULL), 0);
    CHECK_IS(enable(port, shared, 1, FILTER_IN, LEVEL_ONCE), ERROR_SUCCESS);
    send_to_itself(shared);
    CHECK_NEXT(port, 1, SOCK_NOTIFY_EVENT_IN);
    END_REGISTRATION(port, shared, 1);
    CHECK_IS(closesocket(shared), 0);
    CHECK_IS(closesocket(twin), 0);
}

static int is_over;

static void *is_busy(void *unused)
{
    (void)unused;
    while (!__atomic_load_n(&is_over, __ATOMIC_SEQ_CST)) {
        CHECK_IS(enable(port, shared, 1, FILTER_IN, LEVEL_ONCE), ERROR_SUCCESS);
        CHECK_IS(disable(port, shared), ERROR_SUCCESS);
    }
    return NULL;
}

/* A child has a copy of every lock as it was. */
static void a_forked_child_may_close(void)
{
    pthread_t thread;
    int children = is_slow() ? 5 : 100, i, status;
    shared = registered_socket();
    is_over = 0;
    CHECK_IS(pthread_create(&thread, NULL, is_busy, NULL), 0);
    for (i = 0; i < children; i++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            alarm(STUCK);
            if (dup2(2, (int)shared) != (int)shared || close((int)shared) != 0 || close_range(3, ~0U, 0) != 0) {
                _exit(1);
            }
            /* Not by an exit, of which Valgrind takes the opportunity to miss the other thread's memory. */
            kill(getpid(), SIGKILL);
        }
        CHECK_IS(waitpid(child, &status, 0), child);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    }
    __atomic_store_n(&is_over, 1, __ATOMIC_SEQ_CST);
    CHECK_IS(pthread_join(thread, NULL), 0);
    END_REGISTRATION(port, shared, 1);
    CHECK_IS(closesocket(shared), 0);
}

int main(void)
{
    start();
    port = new_port(0);
    what_a_read_found_is_not_believed_of_the_next_socket();
    they_do_what_the_system_does();
    what_a_child_closes_goes_on_here();
    a_signal_handler_may_close();
    a_forked_child_may_close();
    CHECK_IS(CloseHandle(port), TRUE);
    return finish();
}
