/* Children that are forked while other threads of their parent are busy in the library: locks held
 * by those stay locked there. Row C 32. Fifty forks, or FORKS in the environment. */
#include <winsock2.h>
#include <mswsock.h>
#include <windows.h>

#include <pthread.h>
#include <sys/wait.h>

#include "check.h"

/* Sockets whose registrations and associations the busy threads change all the time. */
enum { BUSY = 2 };
static SOCKET busy[BUSY];
static HANDLE ports[BUSY];
static volatile int is_over;

static void *change_registrations(void *unused)
{
    while (!__atomic_load_n(&is_over, __ATOMIC_SEQ_CST)) {
        CHECK_IS(enable(ports[0], busy[0], 1, FILTER_IN, LEVEL_ONCE), ERROR_SUCCESS);
        CHECK_IS(unregister(ports[0], busy[0]), ERROR_SUCCESS);
        CHECK_NEXT(ports[0], 1, SOCK_NOTIFY_EVENT_REMOVE);
    }
    return unused;
}

static void *make_ports(void *unused)
{
    while (!__atomic_load_n(&is_over, __ATOMIC_SEQ_CST)) {
        HANDLE port = CreateIoCompletionPort((HANDLE)(uintptr_t)busy[1], NULL, 1, 1);
        struct sockaddr_in address;
        CHECK(port != NULL);
        CHECK(CloseHandle(port));
        CHECK_IS(closesocket(tcp_listener(&address)), 0);
    }
    return unused;
}

/* The allocator of AddressSanitizer may be locked forever in a child that was forked while another
 * thread used it: with GCC 12, one in 150 children of a program that does nothing but allocate. So
 * no other thread is busy there. */
#ifdef __SANITIZE_ADDRESS__
enum { BESIDE_OTHERS = 0 };
#else
enum { BESIDE_OTHERS = 1 };
#endif

/* What a child does, with sockets and handles that it has inherited and with its own. */
static void live_on(HANDLE inherited, SOCKET s)
{
    OVERLAPPED *overlapped;
    ULONG_PTR key;
    DWORD bytes, time = 1;
    SOCKET fresh[BUSY];
    struct sockaddr_in address;
    HANDLE own;
    char byte;
    int i;

    /* As recommended for a child. The numbers are reused. */
    for (i = 0; i < BUSY; i++) {
        CHECK_IS(close((int)busy[i]), 0);
    }
    for (i = 0; i < BUSY; i++) {
        fresh[i] = udp_socket();
        bind_to_loopback(fresh[i]);
    }
    own = CreateIoCompletionPort(INVALID_HANDLE_VALUE, NULL, 0, 1);
    CHECK(own != NULL && own != inherited);
    /* What the parent has registered and associated is a socket like any other. */
    CHECK(CreateIoCompletionPort((HANDLE)(uintptr_t)s, own, 1, 0) == own);
    CHECK_IS(enable(own, s, 7, FILTER_OUT, LEVEL_ONCE), ERROR_SUCCESS);
    CHECK_NEXT(own, 7, SOCK_NOTIFY_EVENT_OUT);
    for (i = 0; i < BUSY; i++) {
        CHECK(CreateIoCompletionPort((HANDLE)(uintptr_t)fresh[i], own, 1, 0) == own);
        CHECK_IS(enable(own, fresh[i], 8, FILTER_OUT, LEVEL_ONCE), ERROR_SUCCESS);
        CHECK_NEXT(own, 8, SOCK_NOTIFY_EVENT_OUT);
        CHECK_IS(setsockopt(fresh[i], SOL_SOCKET, SO_RCVTIMEO, (const char *)&time, sizeof time), 0);
        CHECK_SOCKET_ERROR(recv(fresh[i], &byte, 1, 0), WSAETIMEDOUT);
        END_REGISTRATION(own, fresh[i], 8);
        CHECK_IS(closesocket(fresh[i]), 0);
    }
    CHECK_IS(closesocket(tcp_listener(&address)), 0);
    /* What the parent has said of a socket is remembered. */
    CHECK_SOCKET_ERROR(recv(s, &byte, 1, 0), WSAETIMEDOUT);
    CHECK_IS(closesocket(s), 0);
    CHECK_IS(PostQueuedCompletionStatus(own, 1, 2, NULL), TRUE);
    CHECK_IS(GetQueuedCompletionStatus(own, &bytes, &key, &overlapped, SOON), TRUE);
    CHECK_FALSE(PostQueuedCompletionStatus(inherited, 1, 2, NULL), ERROR_INVALID_HANDLE);
    CHECK_IS(CloseHandle(inherited), TRUE);
    CHECK_FALSE(CloseHandle(inherited), ERROR_INVALID_HANDLE);
    CHECK_IS(CloseHandle(own), TRUE);
    CHECK_FALSE(CloseHandle(own), ERROR_INVALID_HANDLE);
}

static int forks(void)
{
    const char *forks = getenv("FORKS");
    return is_slow() ? 5 : forks ? atoi(forks) : tries(50, 1000);
}

int main(void)
{
    void *(*const begin[BUSY])(void *) = {change_registrations, make_ports};
    pthread_t threads[BUSY];
    HANDLE port;
    SOCKET s;
    DWORD time = 1;
    int i, status;

    start();
    for (i = 0; i < BUSY; i++) {
        busy[i] = udp_socket();
        ports[i] = new_port(1);
    }
    s = udp_socket();
    bind_to_loopback(s);
    CHECK_IS(setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, (const char *)&time, sizeof time), 0);
    port = new_port(1);
    CHECK(CreateIoCompletionPort((HANDLE)(uintptr_t)s, port, 1, 0) == port);
    CHECK_IS(enable(port, s, 1, FILTER_IN, LEVEL_ONCE), ERROR_SUCCESS);
    for (i = 0; i < BUSY && BESIDE_OTHERS; i++) {
        CHECK_IS(pthread_create(&threads[i], NULL, begin[i], NULL), 0);
    }
    for (i = forks(); i > 0; i--) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            alarm(STUCK); /* if it is stuck */
            live_on(port, s);
            if (is_slow()) { /* Valgrind asks about memory that the other threads have lost here */
                execl("/bin/true", "true", (char *)NULL);
            }
            _exit(0);
        }
        CHECK_IS(waitpid(child, &status, 0), child);
        CHECK(!WIFSIGNALED(status) || WTERMSIG(status) != SIGALRM);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    /* A child by vfork shares this process's memory, which is no less its own for that. */
    i = (int)vfork();
    if (i == 0) {
        _exit(0);
    }
    CHECK_IS(waitpid((pid_t)i, &status, 0), i);
    CHECK_IS(PostQueuedCompletionStatus(port, 0, 9, NULL), TRUE);
    CHECK_NEXT(port, 9, 0);
    __atomic_store_n(&is_over, 1, __ATOMIC_SEQ_CST);
    for (i = 0; i < BUSY; i++) {
        if (BESIDE_OTHERS) {
            CHECK_IS(pthread_join(threads[i], NULL), 0);
        }
        CHECK_IS(closesocket(busy[i]), 0);
        CHECK(CloseHandle(ports[i]));
    }
    /* The children have done nothing to it. */
    CHECK(is_silent(port));
    END_REGISTRATION(port, s, 1);
    CHECK_IS(closesocket(s), 0);
    CHECK(CloseHandle(port));
    return finish();
}
