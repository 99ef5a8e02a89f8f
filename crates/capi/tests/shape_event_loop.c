/* The shape of a single-threaded event loop: watchers of sockets, a list of changes passed once for
 * each turn, level and persistent registrations, and a wait that only takes packets
 * (ProcessSocketNotifications without registrations).
 *
 * The program on top relays lines between clients, which are all sockets of this one loop. The data
 * must arrive complete and in order, even with a slow reader, while watchers are added and removed
 * all the time. */
#include <winsock2.h>
#include <mswsock.h>
#include <windows.h>

#include "check.h"

/* ---- the loop ----------------------------------------------------------------------------------- */

enum { EV_READ = 1, EV_WRITE = 2, EV_CLOSED = 4 };
enum { MAX_CHANGES = 64, MAX_EVENTS = 32 };

struct watcher;
typedef void (*watcher_callback)(struct watcher *watcher, int events);

typedef struct watcher {
    SOCKET fd;
    watcher_callback callback;
    void *data;
    int wanted;         /* EV_…, as the program wants it */
    int registered;     /* EV_…, as the port has it; -1: not at all */
    int is_closing;
    int is_changed;     /* it is in the list of changes */
    struct watcher *next_changed;
    struct watcher *next_dead;
} watcher;

static struct {
    HANDLE port;
    watcher *changed, **changed_end;
    int watchers;       /* registered, or about to be */
    watcher *dead;      /* REMOVE has come: freed at the end of the turn */
    unsigned long turns, packets, handed_over;
} loop;

static void note_change(watcher *w)
{
    if (!w->is_changed) {
        w->is_changed = 1;
        w->next_changed = NULL;
        *loop.changed_end = w;
        loop.changed_end = &w->next_changed;
    }
}

static watcher *watch(SOCKET fd, int wanted, watcher_callback callback, void *data)
{
    watcher *w = (watcher *)calloc(1, sizeof *w);
    CHECK(w != NULL);
    w->fd = fd;
    w->callback = callback;
    w->data = data;
    w->wanted = wanted;
    w->registered = -1;
    loop.watchers++;
    note_change(w);
    return w;
}

static void want(watcher *w, int wanted)
{
    if (w->wanted != wanted) {
        w->wanted = wanted;
        note_change(w);
    }
}

/* The watcher and its data live until REMOVE has come. */
static void stop(watcher *w)
{
    if (!w->is_closing) {
        w->is_closing = 1;
        note_change(w);
    }
}

static UINT16 filter_of(int wanted)
{
    return (UINT16)((wanted & EV_READ ? SOCK_NOTIFY_REGISTER_EVENT_IN | SOCK_NOTIFY_REGISTER_EVENT_HANGUP : 0) |
                    (wanted & EV_WRITE ? SOCK_NOTIFY_REGISTER_EVENT_OUT : 0));
}

/* Hands the list of changes over, as many at a time as there is room for. */
static void hand_over_changes(void)
{
    while (loop.changed != NULL) {
        SOCK_NOTIFY_REGISTRATION changes[MAX_CHANGES];
        UINT32 count = 0, i;
        while (loop.changed != NULL && count < MAX_CHANGES) {
            watcher *w = loop.changed;
            SOCK_NOTIFY_REGISTRATION *c = &changes[count];
            loop.changed = w->next_changed;
            w->is_changed = 0;
            memset(c, 0, sizeof *c);
            c->socket = w->fd;
            c->completionKey = w;
            if (w->is_closing) {
                if (w->registered < 0) { /* it never was there: no REMOVE will come */
                    w->next_dead = loop.dead;
                    loop.dead = w;
                    continue;
                }
                c->operation = SOCK_NOTIFY_OP_REMOVE;
            } else if (w->wanted == 0) {
                if (w->registered <= 0) {
                    continue;
                }
                w->registered = 0;
                c->operation = SOCK_NOTIFY_OP_DISABLE;
            } else {
                w->registered = w->wanted;
                c->operation = SOCK_NOTIFY_OP_ENABLE;
                c->eventFilter = filter_of(w->wanted);
                c->triggerFlags = SOCK_NOTIFY_TRIGGER_LEVEL | SOCK_NOTIFY_TRIGGER_PERSISTENT;
            }
            count++;
        }
        if (loop.changed == NULL) {
            loop.changed_end = &loop.changed;
        }
        if (count == 0) {
            continue;
        }
        CHECK_IS(ProcessSocketNotifications(loop.port, count, changes, 0, 0, NULL, NULL), ERROR_SUCCESS);
        for (i = 0; i < count; i++) {
            CHECK_IS(changes[i].registrationResult, ERROR_SUCCESS);
        }
        loop.handed_over += count;
    }
}

static void run_loop(void)
{
    while (loop.watchers > 0) {
        OVERLAPPED_ENTRY entries[MAX_EVENTS];
        UINT32 count = 0, i;
        DWORD outcome;
        hand_over_changes();
        if (loop.dead == NULL) {
            outcome = ProcessSocketNotifications(loop.port, 0, NULL, SOON, MAX_EVENTS, entries, &count);
            CHECK_IS(outcome, ERROR_SUCCESS);
        }
        loop.turns++;
        loop.packets += count;
        for (i = 0; i < count; i++) {
            watcher *w = (watcher *)entries[i].lpCompletionKey;
            UINT32 events = SocketNotificationRetrieveEvents(&entries[i]);
            if (events & SOCK_NOTIFY_EVENT_REMOVE) {
                CHECK(w->is_closing);
                w->next_dead = loop.dead;
                loop.dead = w;
            } else if (!w->is_closing) {
                w->callback(w, (events & SOCK_NOTIFY_EVENT_IN ? EV_READ : 0) |
                                   (events & SOCK_NOTIFY_EVENT_OUT ? EV_WRITE : 0) |
                                   (events & (SOCK_NOTIFY_EVENT_HANGUP | SOCK_NOTIFY_EVENT_ERR) ? EV_CLOSED : 0));
            }
        }
        while (loop.dead != NULL) {
            watcher *w = loop.dead;
            loop.dead = w->next_dead;
            CHECK_IS(closesocket(w->fd), 0);
            free(w->data);
            free(w);
            loop.watchers--;
        }
    }
}

/* ---- the program: an echo with queues, and clients that check their echoes ---------------------- */

enum { GENERATIONS = 3, AT_ONCE = 25, LINE = 3000, LINES = 30 };

typedef struct {
    char buffer[8192];
    int first, last, is_at_end;
} connection;

typedef struct {
    unsigned seed_out, seed_in;
    int sent, received, lag;
} client;

static struct sockaddr_in server_address;
static watcher *listening;
static int clients_done, clients_begun;

static int total(void)
{
    return is_slow() ? AT_ONCE : GENERATIONS * AT_ONCE;
}

static char next_byte(unsigned *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (char)(*seed >> 24);
}

static void on_client(watcher *w, int events);

static void begin_client(void)
{
    client *c = (client *)calloc(1, sizeof *c);
    SOCKET s = tcp_socket();
    CHECK(c != NULL);
    c->seed_out = c->seed_in = (unsigned)++clients_begun;
    set_nonblocking(s);
    CHECK_SOCKET_ERROR(connect(s, (struct sockaddr *)&server_address, sizeof server_address), WSAEWOULDBLOCK);
    watch(s, EV_WRITE, on_client, c); /* connected when it is writable */
}

static void on_client(watcher *w, int events)
{
    client *c = (client *)w->data;
    char bytes[LINE];
    int count, i;
    if ((events & EV_WRITE) && c->sent < LINE * LINES) {
        unsigned seed = c->seed_out;
        int room = LINE * LINES - c->sent < LINE ? LINE * LINES - c->sent : LINE;
        for (i = 0; i < room; i++) {
            bytes[i] = next_byte(&seed);
        }
        count = (int)send(w->fd, bytes, room, 0);
        if (count < 0) {
            CHECK_IS(WSAGetLastError(), WSAEWOULDBLOCK);
            return;
        }
        c->sent += count;
        for (i = 0; i < count; i++) {
            next_byte(&c->seed_out);
        }
        if (c->sent == LINE * LINES) {
            CHECK_IS(shutdown(w->fd, SD_SEND), 0);
            want(w, EV_READ);
        } else {
            /* A slow reader: every second client reads only now and then. */
            want(w, c->lag++ % 4 == 0 || clients_begun % 2 ? EV_READ | EV_WRITE : EV_WRITE);
        }
    }
    if (events & (EV_READ | EV_CLOSED)) {
        count = (int)recv(w->fd, bytes, sizeof bytes, 0);
        if (count < 0) {
            CHECK_IS(WSAGetLastError(), WSAEWOULDBLOCK);
            return;
        }
        for (i = 0; i < count; i++) {
            CHECK_IS(bytes[i], next_byte(&c->seed_in));
        }
        c->received += count;
        if (count == 0) {
            CHECK_IS(c->sent, LINE * LINES);
            CHECK_IS(c->received, LINE * LINES);
            clients_done++;
            stop(w);
            if (clients_begun < total()) {
                begin_client();
            } else if (clients_done == total()) {
                stop(listening);
            }
        }
    }
}

static void on_connection(watcher *w, int events)
{
    connection *c = (connection *)w->data;
    int count;
    if ((events & (EV_READ | EV_CLOSED)) && !c->is_at_end && c->last < (int)sizeof c->buffer) {
        count = (int)recv(w->fd, c->buffer + c->last, (int)sizeof c->buffer - c->last, 0);
        if (count >= 0) {
            c->last += count;
            c->is_at_end = count == 0;
        } else {
            CHECK_IS(WSAGetLastError(), WSAEWOULDBLOCK);
        }
    }
    if (c->first < c->last) {
        count = (int)send(w->fd, c->buffer + c->first, c->last - c->first, 0);
        if (count >= 0) {
            c->first += count;
        } else {
            CHECK_IS(WSAGetLastError(), WSAEWOULDBLOCK);
        }
    }
    if (c->first == c->last) {
        c->first = c->last = 0;
        if (c->is_at_end) {
            stop(w);
            return;
        }
    }
    want(w, (c->last < (int)sizeof c->buffer && !c->is_at_end ? EV_READ : 0) | (c->first < c->last ? EV_WRITE : 0));
}

static void on_listener(watcher *w, int events)
{
    CHECK(events & EV_READ);
    for (;;) {
        SOCKET s = accept(w->fd, NULL, NULL);
        connection *c;
        if (s == INVALID_SOCKET) {
            CHECK_IS(WSAGetLastError(), WSAEWOULDBLOCK);
            return;
        }
        set_nonblocking(s);
        c = (connection *)calloc(1, sizeof *c);
        CHECK(c != NULL);
        watch(s, EV_READ, on_connection, c);
    }
}

int main(void)
{
    SOCKET listener;
    watcher *never_handed_over;
    int i;
    start();
    loop.port = new_port(1);
    loop.changed_end = &loop.changed;
    listener = tcp_listener(&server_address);
    set_nonblocking(listener);
    listening = watch(listener, EV_READ, on_listener, NULL);
    for (i = 0; i < AT_ONCE; i++) {
        begin_client();
    }
    never_handed_over = watch(udp_socket(), EV_READ, on_listener, NULL);
    stop(never_handed_over);
    run_loop();
    CHECK_IS(clients_done, total());
    CHECK(is_silent(loop.port));
    printf("%lu turns, %lu packets, %lu changes\n", loop.turns, loop.packets, loop.handed_over);
    CHECK_IS(CloseHandle(loop.port), TRUE);
    return finish();
}
