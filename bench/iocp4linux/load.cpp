/* Load for server.cpp: one thread, epoll, no library.
 *   load MODE PORT SECONDS [-c CLIENTS] [-w WARMUP_SECONDS] [-p PID_OF_SERVER] [-b BYTES]
 * short: connect, send 64 bytes, wait for the echo, reset; again.   echo: connections that stay.
 * abort: connect, reset immediately; again (one echo at the end shows whether the server lives).
 * Every byte that returns is compared. With -p the server's processor time in the window is read
 * from its clock. */
#include <arpa/inet.h>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <netinet/in.h>
#include <string>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

static double now(clockid_t c = CLOCK_MONOTONIC)
{
    timespec t;
    if (clock_gettime(c, &t) != 0)
        return -1;
    return t.tv_sec + t.tv_nsec / 1e9;
}

struct Client {
    int fd = -1;
    bool connected = false;
    size_t sent = 0, got = 0;
    double since = 0;
    std::vector<char> out;
};

static int set_, bytes_ = 64;
static sockaddr_in address;
static std::string mode;
static uint64_t serial, errors, mismatches, done_;
static int last_error;
static double longest;

static void wrong(int e) { errors++, last_error = e; }

static void open_client(Client &c, unsigned i)
{
    c.fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (c.fd < 0)
        perror("socket"), exit(3);
    linger l = {1, 0};
    setsockopt(c.fd, SOL_SOCKET, SO_LINGER, &l, sizeof l);
    c.connected = false;
    c.since = now();
    if (connect(c.fd, (sockaddr *)&address, sizeof address) != 0 && errno != EINPROGRESS)
        wrong(errno);
    epoll_event e = {};
    e.events = EPOLLOUT;
    e.data.u32 = i;
    epoll_ctl(set_, EPOLL_CTL_ADD, c.fd, &e);
}

static void reopen(Client &c, unsigned i)
{
    close(c.fd);
    open_client(c, i);
}

static void begin(Client &c, unsigned i, bool first)
{
    c.out.resize(bytes_);
    uint64_t s = ++serial * 0x9E3779B97F4A7C15ull;
    for (int k = 0; k < bytes_; k++)
        c.out[k] = (char)(s >> (k % 8 * 8)) ^ (char)(k / 8 * 37);
    c.got = 0;
    c.since = now();
    ssize_t n = send(c.fd, c.out.data(), bytes_, MSG_NOSIGNAL);
    if (n != bytes_) { /* so little always fits */
        wrong(n < 0 ? errno : EMSGSIZE);
        reopen(c, i);
        return;
    }
    if (first) {
        epoll_event e = {};
        e.events = EPOLLIN;
        e.data.u32 = i;
        epoll_ctl(set_, EPOLL_CTL_MOD, c.fd, &e);
    }
}

static void event(Client &c, unsigned i)
{
    if (!c.connected) {
        int e = 0;
        socklen_t size = sizeof e;
        getsockopt(c.fd, SOL_SOCKET, SO_ERROR, &e, &size);
        if (e) {
            wrong(e);
            usleep(1000);
            reopen(c, i);
            return;
        }
        c.connected = true;
        if (mode == "abort") {
            done_++;
            reopen(c, i);
            return;
        }
        begin(c, i, true);
        return;
    }
    std::vector<char> in(bytes_ + 1);
    ssize_t n = recv(c.fd, in.data(), bytes_ - c.got + 1, 0);
    if (n < 0 && errno == EAGAIN)
        return;
    if (n <= 0) {
        wrong(n == 0 ? EPIPE : errno);
        reopen(c, i);
        return;
    }
    if (c.got + n > (size_t)bytes_ || memcmp(in.data(), c.out.data() + c.got, n) != 0) {
        mismatches++;
        reopen(c, i);
        return;
    }
    c.got += n;
    if (c.got < (size_t)bytes_)
        return;
    done_++;
    double t = now() - c.since;
    if (t > longest)
        longest = t;
    if (mode == "short")
        reopen(c, i);
    else
        begin(c, i, false);
}

static void run(std::vector<Client> &clients, double until)
{
    epoll_event e[64];
    for (double t; (t = now()) < until;) {
        int n = epoll_wait(set_, e, 64, (int)((until - t) * 1000) + 1);
        for (int k = 0; k < n; k++)
            event(clients[e[k].data.u32], e[k].data.u32);
    }
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return fprintf(stderr, "load MODE PORT SECONDS [-c n] [-w s] [-p pid] [-b bytes]\n"), 2;
    mode = argv[1];
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(atoi(argv[2]));
    double seconds = atof(argv[3]), warm = 0.5;
    int count = mode == "echo" ? 64 : 32, pid = 0;
    for (int i = 4; i + 1 < argc; i += 2)
        switch (argv[i][1]) {
        case 'c': count = atoi(argv[i + 1]); break;
        case 'w': warm = atof(argv[i + 1]); break;
        case 'p': pid = atoi(argv[i + 1]); break;
        case 'b': bytes_ = atoi(argv[i + 1]); break;
        }
    clockid_t clock = CLOCK_MONOTONIC;
    if (pid && clock_getcpuclockid(pid, &clock) != 0)
        return fprintf(stderr, "load: no clock of process %d\n", pid), 2;
    set_ = epoll_create1(EPOLL_CLOEXEC);
    std::vector<Client> clients(count);
    for (int i = 0; i < count; i++)
        open_client(clients[i], i);
    run(clients, now() + warm);
    longest = 0;
    uint64_t before = done_, bad = errors;
    double cpu = pid ? now(clock) : 0, start = now();
    run(clients, start + seconds);
    double end = now();
    cpu = pid ? now(clock) - cpu : 0;
    uint64_t n = done_ - before;
    int stalled = 0;
    double waiting = 0;
    for (auto &c : clients) {
        double t = end - c.since;
        if (t > waiting)
            waiting = t;
        if (t > 1)
            stalled++;
    }
    bool lives = true;
    if (mode == "abort") {
        mode = "echo";
        for (auto &c : clients)
            close(c.fd);
        std::vector<Client> one(1);
        uint64_t d = done_;
        open_client(one[0], 0);
        run(one, now() + 1);
        lives = done_ > d;
    }
    printf("requests=%lu seconds=%.3f rate=%.0f cpu_us=%.3f errors=%lu warmup_errors=%lu last_error=%d mismatches=%lu "
           "stalled=%d longest_ms=%.1f waiting_ms=%.1f lives=%d\n",
           (unsigned long)n, end - start, n / (end - start), n && pid ? cpu * 1e6 / n : 0, (unsigned long)(errors - bad),
           (unsigned long)bad, last_error, (unsigned long)mismatches, stalled, longest * 1e3, waiting * 1e3, lives);
    return errors || mismatches || stalled || !lives;
}
