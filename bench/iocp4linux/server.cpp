/* An ordinary IOCP echo server: THREADS threads take packets, 16 AcceptEx are in flight, and
 * WSASend returns the data of each WSARecv. One operation is in flight for each connection, so its
 * memory belongs to the thread that has its packet.
 *   server THREADS [BATCH [CONCURRENCY]]
 * BATCH 1: GetQueuedCompletionStatus; more: GetQueuedCompletionStatusEx with that many entries (16
 * by default). Prints its port; on SIGTERM also its processor time and its counts. -DIOCP4LINUX:
 * microcai/iocp (either back end). Otherwise: completion-port. The only differences are in this
 * block. */
#ifdef IOCP4LINUX
#include "iocp.h"
#undef socket
#ifndef ACCEPT_FLAGS
#define ACCEPT_FLAGS WSA_FLAG_FAKE_CREATION /* as its own examples: AcceptEx makes the socket */
#endif
static int descriptor(SOCKET s) { return SOCKET_get_fd(s); }
/* It reports no failure by GetQueuedCompletionStatus, nor in OVERLAPPED::Internal. */
static bool accept_failed(SOCKET s, const OVERLAPPED *) { return descriptor(s) < 0; }
static void accepted_from(SOCKET, SOCKET) {}
#else
#include <winsock2.h>
#include <mswsock.h>
#include <windows.h>
#define ACCEPT_FLAGS WSA_FLAG_OVERLAPPED
static bool accept_failed(SOCKET, const OVERLAPPED *o) { return o->Internal != 0; }
static void accepted_from(SOCKET s, SOCKET listener)
{
    setsockopt(s, SOL_SOCKET, SO_UPDATE_ACCEPT_CONTEXT, (const char *)&listener, sizeof listener);
}
#endif

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>
#include <netinet/in.h>
#include <sys/resource.h>
#include <unistd.h>

enum Kind { ACCEPT, RECEIVE, SEND };
enum { ACCEPTS = 16, SIZE = 1024, ADDRESS = sizeof(struct sockaddr_in) + 16, MOST = 256 };

struct Operation {
    OVERLAPPED overlapped; /* first */
    Kind kind;
    SOCKET s;
    DWORD count, sent;
    char bytes[SIZE];
};

struct alignas(128) Counts {
    std::atomic<unsigned long> requests{0}, accepted{0}, closed{0}, failed_accepts{0}, odd{0}, packets{0}, waits{0};
};

static HANDLE port;
static SOCKET listener;

static void fail(const char *what)
{
    fprintf(stderr, "server: %s: error %u\n", what, (unsigned)GetLastError());
    _exit(3);
}

static void add(std::atomic<unsigned long> &n) /* of one thread */
{
    n.store(n.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

static void post_accept()
{
    Operation *o = new Operation;
    DWORD received = 0;
    memset(&o->overlapped, 0, sizeof o->overlapped);
    o->kind = ACCEPT;
    o->s = WSASocketW(AF_INET, SOCK_STREAM, IPPROTO_TCP, NULL, 0, ACCEPT_FLAGS);
    if (o->s == INVALID_SOCKET)
        fail("making a socket");
    if (!AcceptEx(listener, o->s, o->bytes, 0, ADDRESS, ADDRESS, &received, &o->overlapped) &&
        WSAGetLastError() != WSA_IO_PENDING)
        fail("AcceptEx");
}

static void end(Operation *o, Counts &c)
{
    closesocket(o->s);
    delete o;
    add(c.closed);
}

static void receive(Operation *o, Counts &c)
{
    WSABUF b;
    DWORD flags = 0;
    b.buf = o->bytes;
    b.len = SIZE;
    memset(&o->overlapped, 0, sizeof o->overlapped);
    o->kind = RECEIVE;
    if (WSARecv(o->s, &b, 1, NULL, &flags, &o->overlapped, NULL) == SOCKET_ERROR && WSAGetLastError() != WSA_IO_PENDING)
        end(o, c);
}

static void send_rest(Operation *o, Counts &c)
{
    WSABUF b;
    b.buf = o->bytes + o->sent;
    b.len = o->count - o->sent;
    memset(&o->overlapped, 0, sizeof o->overlapped);
    o->kind = SEND;
    if (WSASend(o->s, &b, 1, NULL, 0, &o->overlapped, NULL) == SOCKET_ERROR && WSAGetLastError() != WSA_IO_PENDING)
        end(o, c);
}

static void handle(Operation *o, DWORD bytes, Counts &c)
{
    add(c.packets);
    switch (o->kind) {
    case ACCEPT:
        post_accept();
        if (accept_failed(o->s, &o->overlapped)) {
            add(c.failed_accepts);
            closesocket(o->s);
            delete o;
            break;
        }
        add(c.accepted);
        accepted_from(o->s, listener);
        if (!CreateIoCompletionPort((HANDLE)o->s, port, 2, 0))
            fail("associating");
        receive(o, c);
        break;
    case RECEIVE:
        if (bytes == 0 || bytes > SIZE) { /* the end of the stream; failed (iocp4linux: a negated errno) */
            end(o, c);
            break;
        }
        o->count = bytes;
        o->sent = 0;
        send_rest(o, c);
        break;
    case SEND:
        if (bytes == 0 || bytes > o->count - o->sent) {
            end(o, c);
            break;
        }
        o->sent += bytes;
        if (o->sent < o->count) {
            send_rest(o, c);
            break;
        }
        add(c.requests);
        receive(o, c);
        break;
    default:
        add(c.odd);
    }
}

static void serve(unsigned batch, Counts &c)
{
    OVERLAPPED_ENTRY e[MOST];
    for (;;) {
        if (batch == 1) {
            DWORD bytes = 0;
            ULONG_PTR key = 0;
            LPOVERLAPPED overlapped = NULL;
            BOOL ok = GetQueuedCompletionStatus(port, &bytes, &key, &overlapped, INFINITE);
            add(c.waits);
            if (!overlapped) {
                add(c.odd);
                if (!ok)
                    fail("GetQueuedCompletionStatus");
                continue;
            }
            handle((Operation *)overlapped, bytes, c);
        } else {
            ULONG n = 0;
            if (!GetQueuedCompletionStatusEx(port, e, batch, &n, INFINITE, FALSE))
                fail("GetQueuedCompletionStatusEx");
            add(c.waits);
            for (ULONG i = 0; i < n; i++)
                if (e[i].lpOverlapped)
                    handle((Operation *)e[i].lpOverlapped, e[i].dwNumberOfBytesTransferred, c);
                else
                    add(c.odd);
        }
    }
}

int main(int argc, char **argv)
{
    unsigned threads = argc > 1 ? atoi(argv[1]) : 1, batch = argc > 2 ? atoi(argv[2]) : 16;
    unsigned concurrency = argc > 3 ? atoi(argv[3]) : 0;
    if (threads < 1 || threads > 64 || batch < 1 || batch > MOST)
        return 2;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);

    WSADATA data;
    WSAStartup(MAKEWORD(2, 2), &data);
    port = CreateIoCompletionPort(INVALID_HANDLE_VALUE, NULL, 0, concurrency);
    if (!port || port == INVALID_HANDLE_VALUE)
        fail("CreateIoCompletionPort");
    listener = WSASocketW(AF_INET, SOCK_STREAM, IPPROTO_TCP, NULL, 0, WSA_FLAG_OVERLAPPED);
    if (listener == INVALID_SOCKET)
        fail("the listener");
    struct sockaddr_in a;
    memset(&a, 0, sizeof a);
    a.sin_family = AF_INET;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(listener, (struct sockaddr *)&a, sizeof a) != 0 || listen(listener, 511) != 0)
        fail("listening");
    if (!CreateIoCompletionPort((HANDLE)listener, port, 1, 0))
        fail("associating the listener");
    for (int i = 0; i < ACCEPTS; i++)
        post_accept();

    std::vector<Counts> counts(threads);
    std::vector<std::thread> all;
    for (unsigned i = 0; i < threads; i++)
        all.emplace_back(serve, batch, std::ref(counts[i]));

    socklen_t size = sizeof a;
#ifdef IOCP4LINUX
    getsockname(descriptor(listener), (struct sockaddr *)&a, &size);
#else
    getsockname(listener, (struct sockaddr *)&a, (int *)&size);
#endif
    printf("%u\n", (unsigned)ntohs(a.sin_port));
    fflush(stdout);

    int which;
    sigwait(&set, &which);
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    unsigned long n[7] = {0};
    for (auto &c : counts) {
        n[0] += c.requests, n[1] += c.accepted, n[2] += c.closed, n[3] += c.failed_accepts, n[4] += c.odd;
        n[5] += c.packets, n[6] += c.waits;
    }
    printf("user_ms=%.1f system_ms=%.1f requests=%lu connections=%lu closed=%lu failed_accepts=%lu odd_packets=%lu "
           "packets=%lu waits=%lu shares=",
           u.ru_utime.tv_sec * 1e3 + u.ru_utime.tv_usec / 1e3, u.ru_stime.tv_sec * 1e3 + u.ru_stime.tv_usec / 1e3, n[0],
           n[1], n[2], n[3], n[4], n[5], n[6]);
    for (unsigned i = 0; i < threads; i++)
        printf("%s%lu", i ? "/" : "", counts[i].packets.load());
    printf("\n");
    fflush(stdout);
    _exit(0);
}
