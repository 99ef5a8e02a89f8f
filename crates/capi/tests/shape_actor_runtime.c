/* The shape of an actor runtime: one thread waits on the port and turns packets into messages. The
 * actors' threads do everything else, and issue control operations during that wait. An event is
 * freed only when REMOVE has passed through the owner's mailbox.
 *
 * Thousands of short connections end in every possible way: closed, half closed and reset by the
 * peer, closed by the owner immediately after requesting REMOVE, closed after it, and unsubscribed
 * by another thread while a packet is queued. Events reported after their end, or never, are
 * detected: by the mark in each event, by the sanitizer, and by the count. */
#include <winsock2.h>
#include <mswsock.h>
#include <windows.h>

#include <pthread.h>

#include "check.h"

enum { ACTOR_THREADS = 3, PEERS = 3, CONNECTIONS = 3600, SLOW_CONNECTIONS = 120, LINE = 400 };
enum { ALIVE = 0x0A11FE, DEAD = 0xDEAD };

static int connections(void)
{
    return is_slow() ? SLOW_CONNECTIONS : CONNECTIONS;
}

/* ---- mailboxes ---------------------------------------------------------------------------------- */

struct event;

typedef enum { READY, DISPOSED, STOP, QUIT } message_kind;

typedef struct message {
    message_kind kind;
    struct event *event;
    UINT32 flags;
    struct message *next;
} message;

typedef struct {
    pthread_mutex_t lock;
    pthread_cond_t arrived;
    message *first, **last;
} mailbox;

static mailbox mailboxes[ACTOR_THREADS];

static void say_to(int thread, message_kind kind, struct event *event, UINT32 flags)
{
    mailbox *box = &mailboxes[thread];
    message *m = (message *)malloc(sizeof *m);
    CHECK(m != NULL);
    m->kind = kind;
    m->event = event;
    m->flags = flags;
    m->next = NULL;
    CHECK_IS(pthread_mutex_lock(&box->lock), 0);
    *box->last = m;
    box->last = &m->next;
    CHECK_IS(pthread_cond_signal(&box->arrived), 0);
    CHECK_IS(pthread_mutex_unlock(&box->lock), 0);
}

static message hear(int thread)
{
    mailbox *box = &mailboxes[thread];
    message *m, heard;
    CHECK_IS(pthread_mutex_lock(&box->lock), 0);
    while (box->first == NULL) {
        CHECK_IS(pthread_cond_wait(&box->arrived, &box->lock), 0);
    }
    m = box->first;
    box->first = m->next;
    if (box->first == NULL) {
        box->last = &box->first;
    }
    CHECK_IS(pthread_mutex_unlock(&box->lock), 0);
    heard = *m;
    free(m);
    return heard;
}

/* ---- events --------------------------------------------------------------------------------------- */

typedef struct event {
    unsigned mark;
    SOCKET fd;
    int owner;              /* the thread of the actor */
    int is_listener;
    int is_unsubscribed;    /* read and written by the owner alone */
    int is_killed;          /* by another thread */
    int closes_at_once;     /* when REMOVE is asked for; otherwise when it has come */
} event;

static HANDLE port;
static int events_alive, connections_ended, connections_killed;

static event *new_event(SOCKET fd, int owner)
{
    event *e = (event *)calloc(1, sizeof *e);
    CHECK(e != NULL);
    e->mark = ALIVE;
    e->fd = fd;
    e->owner = owner;
    __atomic_add_fetch(&events_alive, 1, __ATOMIC_SEQ_CST);
    return e;
}

static void subscribe(event *e)
{
    CHECK_IS(enable(port, e->fd, (uintptr_t)e, FILTER_IN | FILTER_HANGUP, LEVEL_ONCE), ERROR_SUCCESS);
}

static void unsubscribe(event *e)
{
    /* Once REMOVE is asked for the event may be gone. */
    SOCKET fd = e->fd;
    int closes_at_once = e->closes_at_once;
    CHECK_IS(unregister(port, fd), ERROR_SUCCESS);
    if (closes_at_once) {
        CHECK_IS(closesocket(fd), 0);
    }
}

static void dispose(event *e)
{
    CHECK_IS(e->mark, ALIVE);
    if (!e->closes_at_once) {
        CHECK_IS(closesocket(e->fd), 0);
    }
    e->mark = DEAD;
    free(e);
    __atomic_sub_fetch(&events_alive, 1, __ATOMIC_SEQ_CST);
}

/* The thread that waits. It looks at nothing but the mark and the owner. */
static void *poll_packets(void *unused)
{
    int is_over = 0;
    (void)unused;
    while (!is_over) {
        OVERLAPPED_ENTRY entries[32];
        ULONG count, i;
        CHECK_IS(GetQueuedCompletionStatusEx(port, entries, 32, &count, SOON, FALSE), TRUE);
        for (i = 0; i < count; i++) {
            event *e = (event *)entries[i].lpCompletionKey;
            UINT32 flags = SocketNotificationRetrieveEvents(&entries[i]);
            if (e == NULL) {
                is_over = 1; /* posted */
                continue;
            }
            CHECK_IS(e->mark, ALIVE);
            say_to(e->owner, flags & SOCK_NOTIFY_EVENT_REMOVE ? DISPOSED : READY, e, flags);
        }
    }
    return NULL;
}

/* ---- actors ---------------------------------------------------------------------------------------- */

static void accept_connections(event *listener)
{
    static int accepted; /* the listener is one actor */
    if (listener->is_unsubscribed) {
        return;
    }
    for (;;) {
        SOCKET fd = accept(listener->fd, NULL, NULL);
        event *e;
        int which;
        if (fd == INVALID_SOCKET) {
            CHECK_IS(WSAGetLastError(), WSAEWOULDBLOCK);
            break;
        }
        set_nonblocking(fd);
        which = accepted++;
        e = new_event(fd, which % ACTOR_THREADS);
        if (which % 5 == 0) {
            e->is_killed = 1;
            subscribe(e);
            __atomic_add_fetch(&connections_killed, 1, __ATOMIC_SEQ_CST);
            unsubscribe(e); /* its owner may be handling a packet of it */
        } else {
            e->closes_at_once = which % 2;
            subscribe(e);
        }
    }
    subscribe(listener);
}

static void echo(event *e)
{
    char bytes[LINE];
    if (e->is_unsubscribed || e->is_killed) {
        return;
    }
    for (;;) {
        int count = (int)recv(e->fd, bytes, sizeof bytes, 0);
        if (count > 0) {
            int sent = (int)send(e->fd, bytes, count, 0);
            if (sent == count) {
                continue;
            }
            CHECK(sent == SOCKET_ERROR && WSAGetLastError() != WSAEWOULDBLOCK); /* the peer has gone */
        } else if (count < 0 && WSAGetLastError() == WSAEWOULDBLOCK) {
            subscribe(e);
            return;
        }
        e->is_unsubscribed = 1;
        unsubscribe(e);
        return;
    }
}

static void *run_actors(void *argument)
{
    int thread = (int)(uintptr_t)argument;
    for (;;) {
        message m = hear(thread);
        switch (m.kind) {
        case READY:
            CHECK_IS(m.event->mark, ALIVE);
            if (m.event->is_listener) {
                accept_connections(m.event);
            } else {
                echo(m.event);
            }
            break;
        case DISPOSED:
            if (!m.event->is_listener) {
                __atomic_add_fetch(&connections_ended, 1, __ATOMIC_SEQ_CST);
            }
            dispose(m.event);
            break;
        case STOP:
            m.event->is_unsubscribed = 1;
            unsubscribe(m.event);
            break;
        case QUIT:
            return NULL;
        }
    }
}

/* ---- peers ------------------------------------------------------------------------------------------ */

static struct sockaddr_in address;
static int cut_short;

/* Reads the echo until `count` bytes have arrived or the stream ends; they must be right. */
static int read_echo(SOCKET s, const char *line, int count)
{
    char bytes[LINE];
    int done = 0;
    while (done < count) {
        int got = (int)recv(s, bytes, count - done, 0);
        if (got <= 0) {
            break;
        }
        CHECK(memcmp(bytes, line + done, (size_t)got) == 0);
        done += got;
    }
    return done;
}

static void *be_a_peer(void *argument)
{
    int first = (int)(uintptr_t)argument, i, k;
    for (i = first; i < connections(); i += PEERS) {
        SOCKET s = tcp_connected_to(&address);
        struct linger at_once;
        char line[LINE];
        int size = 1 + i * 37 % LINE;
        for (k = 0; k < size; k++) {
            line[k] = (char)(i * 17 + k);
        }
        at_once.l_onoff = 1;
        at_once.l_linger = 0;
        switch (i % 4) {
        case 0: /* all is read, then closed in order; a connection that was killed ends early */
            if (send(s, line, size, 0) == size && shutdown(s, SD_SEND) == 0) {
                if (read_echo(s, line, size) < size) {
                    __atomic_add_fetch(&cut_short, 1, __ATOMIC_SEQ_CST);
                }
            } else {
                __atomic_add_fetch(&cut_short, 1, __ATOMIC_SEQ_CST);
            }
            break;
        case 1: /* closed with data on its way */
            send(s, line, size, 0);
            break;
        case 2: /* reset immediately */
            setsockopt(s, SOL_SOCKET, SO_LINGER, (const char *)&at_once, sizeof at_once);
            break;
        default: /* one exchange, and then a reset */
            if (send(s, line, size, 0) != size || read_echo(s, line, size) < size) {
                __atomic_add_fetch(&cut_short, 1, __ATOMIC_SEQ_CST);
            }
            setsockopt(s, SOL_SOCKET, SO_LINGER, (const char *)&at_once, sizeof at_once);
            break;
        }
        CHECK_IS(closesocket(s), 0);
    }
    return NULL;
}

int main(void)
{
    pthread_t waiting, actors[ACTOR_THREADS], peers[PEERS];
    event *listener;
    int i;
    start();
    port = new_port(0);
    for (i = 0; i < ACTOR_THREADS; i++) {
        CHECK_IS(pthread_mutex_init(&mailboxes[i].lock, NULL), 0);
        CHECK_IS(pthread_cond_init(&mailboxes[i].arrived, NULL), 0);
        mailboxes[i].last = &mailboxes[i].first;
        CHECK_IS(pthread_create(&actors[i], NULL, run_actors, (void *)(uintptr_t)i), 0);
    }
    CHECK_IS(pthread_create(&waiting, NULL, poll_packets, NULL), 0);
    listener = new_event(tcp_listener(&address), 0);
    set_nonblocking(listener->fd);
    listener->is_listener = 1;
    subscribe(listener); /* while another thread waits */
    for (i = 0; i < PEERS; i++) {
        CHECK_IS(pthread_create(&peers[i], NULL, be_a_peer, (void *)(uintptr_t)i), 0);
    }
    for (i = 0; i < PEERS; i++) {
        CHECK_IS(pthread_join(peers[i], NULL), 0);
    }
    while (__atomic_load_n(&connections_ended, __ATOMIC_SEQ_CST) < connections()) {
        usleep(1000); /* stuck forever if an end is never reported: the alarm detects it */
    }
    CHECK_IS(connections_ended, connections());
    say_to(listener->owner, STOP, listener, 0);
    while (__atomic_load_n(&events_alive, __ATOMIC_SEQ_CST) > 0) {
        usleep(1000);
    }
    CHECK_IS(PostQueuedCompletionStatus(port, 0, 0, NULL), TRUE);
    CHECK_IS(pthread_join(waiting, NULL), 0);
    for (i = 0; i < ACTOR_THREADS; i++) {
        say_to(i, QUIT, NULL, 0);
        CHECK_IS(pthread_join(actors[i], NULL), 0);
        CHECK_IS(pthread_cond_destroy(&mailboxes[i].arrived), 0);
        CHECK_IS(pthread_mutex_destroy(&mailboxes[i].lock), 0);
    }
    CHECK_IS(connections_ended, connections());
    CHECK_IS(connections_killed, (connections() + 4) / 5);
    CHECK(cut_short <= connections_killed); /* no other connection's echo was cut short */
    CHECK(is_silent(port));
    printf("%d connections, %d killed, %d of them cut short\n", connections_ended, connections_killed, cut_short);
    CHECK_IS(CloseHandle(port), TRUE);
    return finish();
}
