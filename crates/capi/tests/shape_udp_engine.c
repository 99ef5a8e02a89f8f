/* The shape of an engine for datagrams: workers with a port each, sockets registered once (edge, persistent),
 * the engine's own work posted as packets whose key is a pointer, and a wait by GetQueuedCompletionStatusEx
 * that lasts until the next timer.
 *
 * On top runs a protocol that sends again what was not acknowledged in time. Part of the datagrams is thrown
 * away on purpose, so that nothing arrives without the timers. Each message must arrive once and in order. */
#include <winsock2.h>
#include <mswsock.h>
#include <windows.h>

#include <pthread.h>
#include <time.h>

#include "check.h"

enum { CHANNELS = 6, MESSAGES = 150, WORKERS = 2, LENGTH = 64 };

/* Everything that a key points to begins with this, which determines how to handle the packet. */
typedef struct EVENT {
    void (*handle)(struct EVENT *event, OVERLAPPED_ENTRY *entry);
} EVENT;

struct WORKER;

/* A socket of the engine. */
typedef struct {
    EVENT event;
    struct WORKER *worker;
    SOCKET socket;
    struct sockaddr_in own, peer;
    /* As a sender */
    unsigned sent;             /* messages that were acknowledged */
    int is_sending;
    ULONGLONG again_at;        /* when to send again; 0: no timer runs */
    unsigned losses;
    /* As a receiver */
    unsigned received;
    int is_sender, is_done;
} ENDPOINT;

/* Work that is posted: the thread that posts makes it, the thread that takes it frees it. */
typedef struct {
    EVENT event;
    ENDPOINT *endpoint;
    unsigned guard;
} OPERATION;

typedef struct WORKER {
    HANDLE port;
    pthread_t thread;
    ENDPOINT *endpoints[2 * CHANNELS];
    unsigned count, ended;
    int is_over;
    unsigned long waits, packets, timeouts;
} WORKER;

static WORKER workers[WORKERS];
static ENDPOINT all[2 * CHANNELS];
static int still_sending = CHANNELS;

static unsigned messages(void)
{
    return is_slow() ? MESSAGES / 10 : MESSAGES;
}

static ULONGLONG now(void)
{
    struct timespec time;
    CHECK_IS(clock_gettime(CLOCK_MONOTONIC, &time), 0);
    return (ULONGLONG)time.tv_sec * 1000u + (ULONGLONG)time.tv_nsec / 1000000u;
}

/* ---- posted work -------------------------------------------------------------------------------- */

static void post(WORKER *worker, ENDPOINT *endpoint, void (*handle)(EVENT *, OVERLAPPED_ENTRY *))
{
    OPERATION *operation = (OPERATION *)malloc(sizeof *operation);
    CHECK(operation != NULL);
    operation->event.handle = handle;
    operation->endpoint = endpoint;
    operation->guard = 0xC0FFEEu;
    CHECK_IS(PostQueuedCompletionStatus(worker->port, 0, (ULONG_PTR)&operation->event, NULL), TRUE);
}

static ENDPOINT *take(EVENT *event)
{
    OPERATION *operation = (OPERATION *)event;
    ENDPOINT *endpoint = operation->endpoint;
    CHECK_IS(operation->guard, 0xC0FFEEu);
    operation->guard = 0;
    free(operation);
    return endpoint;
}

static void do_end(EVENT *event, OVERLAPPED_ENTRY *entry)
{
    ENDPOINT *endpoint = take(event);
    SOCK_NOTIFY_REGISTRATION removal = change(endpoint->socket, 0, SOCK_NOTIFY_OP_REMOVE, 0, 0);
    (void)entry;
    endpoint->again_at = 0;
    endpoint->is_done = 1;
    CHECK_IS(ProcessSocketNotifications(endpoint->worker->port, 1, &removal, 0, 0, NULL, NULL), ERROR_SUCCESS);
    CHECK_IS(removal.registrationResult, ERROR_SUCCESS);
}

/* ---- the protocol ------------------------------------------------------------------------------- */

typedef struct {
    UINT32 number;
    UINT32 is_answer;
    char bytes[LENGTH];
} DATAGRAM;

static void transmit(ENDPOINT *endpoint)
{
    DATAGRAM datagram;
    memset(&datagram, 0, sizeof datagram);
    datagram.number = endpoint->sent;
    memset(datagram.bytes, (int)(endpoint->sent & 0x7F), sizeof datagram.bytes);
    endpoint->again_at = now() + 5;
    send_to(endpoint->socket, (const char *)&datagram, sizeof datagram, &endpoint->peer);
}

static void do_start(EVENT *event, OVERLAPPED_ENTRY *entry)
{
    ENDPOINT *endpoint = take(event);
    (void)entry;
    endpoint->is_sending = 1;
    transmit(endpoint);
}

static void received(ENDPOINT *endpoint, const DATAGRAM *datagram)
{
    if (!endpoint->is_sender) {
        DATAGRAM answer;
        CHECK(!datagram->is_answer);
        CHECK(datagram->number <= endpoint->received);
        if (datagram->number == endpoint->received) {
            size_t i;
            for (i = 0; i < LENGTH; i++) {
                CHECK_IS(datagram->bytes[i], datagram->number & 0x7F);
            }
            endpoint->received++;
            if (endpoint->received % 7 == 3) {
                return; /* lost: the sender's timer must bring it again */
            }
        }
        memset(&answer, 0, sizeof answer);
        answer.number = datagram->number;
        answer.is_answer = 1;
        send_to(endpoint->socket, (const char *)&answer, sizeof answer, &endpoint->peer);
    } else if (datagram->number == endpoint->sent && endpoint->is_sending) {
        CHECK(datagram->is_answer);
        endpoint->sent++;
        if (endpoint->sent < messages()) {
            transmit(endpoint);
        } else {
            endpoint->is_sending = 0;
            endpoint->again_at = 0;
            if (__atomic_sub_fetch(&still_sending, 1, __ATOMIC_SEQ_CST) == 0) {
                int i;
                for (i = 0; i < 2 * CHANNELS; i++) { /* the engine ends; each socket at its own worker */
                    post(all[i].worker, &all[i], do_end);
                }
            }
        }
    }
}

static void on_socket(EVENT *event, OVERLAPPED_ENTRY *entry)
{
    ENDPOINT *endpoint = (ENDPOINT *)event;
    UINT32 events = SocketNotificationRetrieveEvents(entry);
    if (events & SOCK_NOTIFY_EVENT_REMOVE) {
        CHECK(endpoint->is_done);
        CHECK_IS(closesocket(endpoint->socket), 0);
        if (++endpoint->worker->ended == endpoint->worker->count) {
            endpoint->worker->is_over = 1;
        }
        return;
    }
    CHECK(events & SOCK_NOTIFY_EVENT_IN);
    for (;;) { /* an edge is reported once */
        DATAGRAM datagram;
        struct sockaddr_in from;
        int length = (int)sizeof from;
        int size = (int)recvfrom(endpoint->socket, (char *)&datagram, sizeof datagram, 0,
                                 (struct sockaddr *)&from, &length);
        if (size < 0) {
            CHECK_IS(WSAGetLastError(), WSAEWOULDBLOCK);
            return;
        }
        CHECK_IS(size, sizeof datagram);
        CHECK_IS(from.sin_port, endpoint->peer.sin_port);
        received(endpoint, &datagram);
    }
}

/* ---- the workers --------------------------------------------------------------------------------- */

/* How long to wait: until the next timer. */
static DWORD time_to_wait(const WORKER *worker)
{
    ULONGLONG time = now();
    DWORD wait = SOON;
    unsigned i;
    for (i = 0; i < worker->count; i++) {
        ULONGLONG at = worker->endpoints[i]->again_at;
        if (at != 0) {
            DWORD left = at <= time ? 0 : (DWORD)(at - time);
            wait = left < wait ? left : wait;
        }
    }
    return wait;
}

static void run_timers(WORKER *worker)
{
    ULONGLONG time = now();
    unsigned i;
    for (i = 0; i < worker->count; i++) {
        ENDPOINT *endpoint = worker->endpoints[i];
        if (endpoint->again_at != 0 && endpoint->again_at <= time) {
            endpoint->losses++;
            transmit(endpoint);
        }
    }
}

static void *work(void *argument)
{
    WORKER *worker = (WORKER *)argument;
    while (!worker->is_over) {
        OVERLAPPED_ENTRY entries[16];
        ULONG count, i;
        DWORD wait;
        run_timers(worker);
        wait = time_to_wait(worker);
        worker->waits++;
        if (!GetQueuedCompletionStatusEx(worker->port, entries, 16, &count, wait, FALSE)) {
            CHECK_IS(GetLastError(), WAIT_TIMEOUT);
            CHECK(wait < SOON);
            worker->timeouts++;
            continue;
        }
        worker->packets += count;
        for (i = 0; i < count; i++) {
            EVENT *event = (EVENT *)entries[i].lpCompletionKey;
            event->handle(event, &entries[i]);
        }
    }
    return NULL;
}

static void begin_endpoint(ENDPOINT *endpoint, WORKER *worker, int is_sender)
{
    memset(endpoint, 0, sizeof *endpoint);
    endpoint->event.handle = on_socket;
    endpoint->worker = worker;
    endpoint->is_sender = is_sender;
    endpoint->socket = udp_socket();
    set_nonblocking(endpoint->socket);
    CHECK_IS(enable(worker->port, endpoint->socket, (uintptr_t)&endpoint->event, FILTER_IN, EDGE_ON),
             ERROR_SUCCESS);
    endpoint->own = bind_to_loopback(endpoint->socket);
    worker->endpoints[worker->count++] = endpoint;
}

int main(void)
{
    unsigned losses = 0;
    int i;
    start();
    for (i = 0; i < WORKERS; i++) {
        workers[i].port = new_port(1);
    }
    for (i = 0; i < CHANNELS; i++) {
        begin_endpoint(&all[2 * i], &workers[i % WORKERS], 1);
        begin_endpoint(&all[2 * i + 1], &workers[(i + i / WORKERS) % WORKERS], 0);
        all[2 * i].peer = all[2 * i + 1].own;
        all[2 * i + 1].peer = all[2 * i].own;
    }
    for (i = 0; i < WORKERS; i++) {
        CHECK_IS(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (i = 0; i < CHANNELS; i++) {
        post(all[2 * i].worker, &all[2 * i], do_start);
    }
    for (i = 0; i < WORKERS; i++) {
        CHECK_IS(pthread_join(workers[i].thread, NULL), 0);
        printf("worker %d: %lu waits, %lu packets, %lu time-outs\n", i, workers[i].waits, workers[i].packets,
               workers[i].timeouts);
    }
    for (i = 0; i < CHANNELS; i++) {
        CHECK_IS(all[2 * i].sent, messages());
        CHECK_IS(all[2 * i + 1].received, messages());
        losses += all[2 * i].losses;
    }
    CHECK(losses >= CHANNELS * (messages() / 7)); /* the timers have done their part */
    for (i = 0; i < WORKERS; i++) {
        CHECK(is_silent(workers[i].port));
        CHECK_IS(CloseHandle(workers[i].port), TRUE);
    }
    return finish();
}
