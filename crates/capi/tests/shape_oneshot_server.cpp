// The shape of a multi-threaded server in C++: threads that wait for one packet at a time, connections that are
// registered level and one-shot, so that one thread has them at a time, and a key that wakes each thread for
// the end. Its classes have members called recv, send, accept, bind and connect, as such classes do.
#include <winsock2.h>
#include <mswsock.h>
#include <windows.h>

#include <atomic>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "check.h"

namespace {

constexpr int server_threads = 6, client_threads = 4, clients_of_each = 20;

int clients()
{
    return client_threads * (is_slow() ? clients_of_each / 10 : clients_of_each);
}

// A socket that is closed with its object.
class Socket {
public:
    explicit Socket(SOCKET handle) : handle_(handle) { CHECK(handle != INVALID_SOCKET); }
    Socket(Socket &&other) noexcept : handle_(other.handle_) { other.handle_ = INVALID_SOCKET; }
    Socket(const Socket &) = delete;
    Socket &operator=(const Socket &) = delete;
    ~Socket()
    {
        if (handle_ != INVALID_SOCKET) {
            CHECK_IS(::closesocket(handle_), 0);
        }
    }

    static Socket stream() { return Socket(::socket(AF_INET, SOCK_STREAM, IPPROTO_TCP)); }

    // Names of the calls themselves, with their own arguments.
    int recv(std::vector<char> &into) { return static_cast<int>(::recv(handle_, into.data(), static_cast<int>(into.size()), 0)); }
    int send(const char *bytes, std::size_t count) { return static_cast<int>(::send(handle_, bytes, static_cast<int>(count), 0)); }
    bool accept(SOCKET &accepted)
    {
        sockaddr_in peer{};
        int length = sizeof peer;
        accepted = ::accept(handle_, reinterpret_cast<sockaddr *>(&peer), &length);
        CHECK(accepted == INVALID_SOCKET || length == static_cast<int>(sizeof peer));
        return accepted != INVALID_SOCKET;
    }
    sockaddr_in bind() { return bind_to_loopback(handle_); }
    bool connect(const sockaddr_in &address)
    {
        return ::connect(handle_, reinterpret_cast<const sockaddr *>(&address), sizeof address) == 0;
    }
    void listen(int backlog = SOMAXCONN) { CHECK_IS(::listen(handle_, backlog), 0); }
    void shutdown() { CHECK_IS(::shutdown(handle_, SD_SEND), 0); }
    SOCKET handle() const { return handle_; }

private:
    SOCKET handle_;
};

// What a key is: an object that handles packets. No object: the end.
class Handler {
public:
    virtual ~Handler() = default;
    virtual void handle(UINT32 events) = 0;
};

std::atomic<int> alive{0}, served{0}, woken{0};

class Server {
public:
    Server() : port_(CreateIoCompletionPort(INVALID_HANDLE_VALUE, nullptr, 0, 2)), listener_(*this)
    {
        CHECK(port_ != nullptr);
        for (int i = 0; i < server_threads; i++) {
            threads_.emplace_back([this] { run(); });
        }
    }
    ~Server()
    {
        listener_.stop();
        for (auto &thread : threads_) { // one packet each
            CHECK_IS(PostQueuedCompletionStatus(port_, 0, 0, nullptr), TRUE);
            (void)thread;
        }
        for (auto &thread : threads_) {
            thread.join();
        }
        CHECK_IS(CloseHandle(port_), TRUE);
    }
    const sockaddr_in &address() const { return listener_.address; }

private:
    class Connection final : public Handler {
    public:
        Connection(Server &server, Socket socket) : server_(server), socket_(std::move(socket)), buffer_(700) { alive++; }
        ~Connection() override { alive--; }

        void begin() { server_.change(socket_, this, SOCK_NOTIFY_OP_ENABLE, FILTER_IN | FILTER_HANGUP); }

        void handle(UINT32 events) override
        {
            if (events & SOCK_NOTIFY_EVENT_REMOVE) {
                served++;
                delete this; // the last packet
                return;
            }
            CHECK_IS(in_use_.exchange(true), false); // one thread at a time
            unsigned filter = 0;
            while (filter == 0) {
                if (!unsent_.empty()) {
                    int count = socket_.send(unsent_.data(), unsent_.size());
                    if (count == SOCKET_ERROR) {
                        CHECK_IS(WSAGetLastError(), WSAEWOULDBLOCK);
                        filter = FILTER_OUT;
                    } else {
                        unsent_.erase(0, static_cast<std::size_t>(count));
                    }
                } else if (is_at_end_) {
                    break;
                } else {
                    int count = socket_.recv(buffer_);
                    if (count == SOCKET_ERROR) {
                        CHECK_IS(WSAGetLastError(), WSAEWOULDBLOCK);
                        filter = FILTER_IN | FILTER_HANGUP;
                    } else {
                        is_at_end_ = count == 0;
                        unsent_.assign(buffer_.data(), static_cast<std::size_t>(count));
                    }
                }
            }
            in_use_ = false;
            server_.change(socket_, this, filter ? SOCK_NOTIFY_OP_ENABLE : SOCK_NOTIFY_OP_REMOVE, filter);
        }

    private:
        Server &server_;
        Socket socket_;
        std::vector<char> buffer_;
        std::string unsent_;
        bool is_at_end_ = false;
        std::atomic<bool> in_use_{false};
    };

    class Listener final : public Handler {
    public:
        explicit Listener(Server &server) : server_(server), socket_(Socket::stream())
        {
            address = socket_.bind();
            socket_.listen();
            set_nonblocking(socket_.handle());
            server_.change(socket_, this, SOCK_NOTIFY_OP_ENABLE, FILTER_IN);
        }
        void handle(UINT32 events) override
        {
            if (events & SOCK_NOTIFY_EVENT_REMOVE) {
                is_stopped_ = true;
                return;
            }
            SOCKET accepted;
            while (socket_.accept(accepted)) {
                Socket connected(accepted);
                set_nonblocking(accepted);
                (new Connection(server_, std::move(connected)))->begin();
            }
            CHECK_IS(WSAGetLastError(), WSAEWOULDBLOCK);
            std::lock_guard<std::mutex> lock(end_);
            if (!is_ending_) {
                server_.change(socket_, this, SOCK_NOTIFY_OP_ENABLE, FILTER_IN);
            }
        }
        void stop()
        {
            {
                std::lock_guard<std::mutex> lock(end_); // nothing being removed is enabled
                is_ending_ = true;
                server_.change(socket_, this, SOCK_NOTIFY_OP_REMOVE, 0);
            }
            while (!is_stopped_) {
                std::this_thread::yield();
            }
        }
        sockaddr_in address{};

    private:
        Server &server_;
        Socket socket_;
        std::mutex end_;
        bool is_ending_ = false;
        std::atomic<bool> is_stopped_{false};
    };

    void change(const Socket &socket, Handler *handler, unsigned operation, unsigned filter)
    {
        CHECK_IS(apply(port_, ::change(socket.handle(), reinterpret_cast<uintptr_t>(handler), operation, filter,
                                       operation == SOCK_NOTIFY_OP_ENABLE ? LEVEL_ONCE : 0)),
                 ERROR_SUCCESS);
    }

    void run()
    {
        for (;;) {
            DWORD bytes = 0;
            ULONG_PTR key = 0;
            LPOVERLAPPED overlapped = nullptr;
            CHECK(GetQueuedCompletionStatus(port_, &bytes, &key, &overlapped, SOON));
            auto *handler = reinterpret_cast<Handler *>(key);
            if (handler == nullptr) {
                woken++;
                return;
            }
            handler->handle(bytes);
        }
    }

    HANDLE port_;
    Listener listener_;
    std::vector<std::thread> threads_;
};

void be_a_client(const sockaddr_in &address, int which)
{
    Socket socket = Socket::stream();
    CHECK(socket.connect(address));
    std::string sent, received;
    for (int i = 0; i < 3000 + which * 97; i++) {
        sent += static_cast<char>('a' + (i * 7 + which) % 26);
    }
    for (std::size_t done = 0; done < sent.size();) {
        std::size_t some = sent.size() - done < 1000 ? sent.size() - done : 1000;
        int count = socket.send(sent.data() + done, some);
        CHECK(count > 0);
        done += static_cast<std::size_t>(count);
    }
    socket.shutdown();
    std::vector<char> buffer(512);
    int count;
    while ((count = socket.recv(buffer)) > 0) {
        received.append(buffer.data(), static_cast<std::size_t>(count));
    }
    CHECK_IS(count, 0);
    CHECK(received == sent);
}

} // namespace

int main()
{
    start();
    {
        Server server;
        std::vector<std::thread> threads;
        for (int i = 0; i < client_threads; i++) {
            threads.emplace_back([&server, i] {
                for (int which = i; which < clients(); which += client_threads) {
                    be_a_client(server.address(), which);
                }
            });
        }
        for (auto &thread : threads) {
            thread.join();
        }
        while (served < clients()) {
            std::this_thread::yield();
        }
    }
    CHECK_IS(served, clients());
    CHECK_IS(alive, 0);
    CHECK_IS(woken, server_threads);
    return finish();
}
