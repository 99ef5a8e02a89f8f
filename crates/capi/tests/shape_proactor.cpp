// The shape of a proactor in C++: threads that call the handlers of finished operations, operations
// that are objects with an OVERLAPPED as their base, connections that connect with ConnectEx and
// whose destructors cancel operations in flight with CancelIoEx. The memory of an operation is
// freed at its end, however its connection has ended.
#include <winsock2.h>
#include <mswsock.h>
#include <windows.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "check.h"

namespace {

constexpr int runners = 3, echoes = 10;

int connections_of_test()
{
    return is_slow() ? 20 : 400;
}

using Handler = std::function<void(DWORD error, DWORD bytes)>;

// Operations in flight. Each is created by new, and deletes itself after its end.
class Operation : public OVERLAPPED {
public:
    explicit Operation(Handler handler) : OVERLAPPED{}, handler_(std::move(handler)) { living++; }
    Operation(const Operation &) = delete;
    Operation &operator=(const Operation &) = delete;
    ~Operation() { living--; }

    void complete(DWORD error, DWORD bytes)
    {
        std::unique_ptr<Operation> self(this);
        handler_(error, bytes);
    }

    static std::atomic<int> living;

private:
    Handler handler_;
};

std::atomic<int> Operation::living{0};

class Proactor {
public:
    Proactor() : port_(CreateIoCompletionPort(INVALID_HANDLE_VALUE, nullptr, 0, runners)) { CHECK(port_ != nullptr); }
    Proactor(const Proactor &) = delete;
    Proactor &operator=(const Proactor &) = delete;
    ~Proactor() { CHECK(CloseHandle(port_)); }

    void add(SOCKET s) { CHECK(CreateIoCompletionPort(reinterpret_cast<HANDLE>(s), port_, s, 0) == port_); }

    void post(Handler handler)
    {
        auto operation = std::make_unique<Operation>(std::move(handler));
        CHECK(PostQueuedCompletionStatus(port_, 0, 0, operation.get()));
        static_cast<void>(operation.release());
    }

    // Until it is stopped.
    void run()
    {
        for (;;) {
            DWORD bytes = 0;
            ULONG_PTR key = 0;
            LPOVERLAPPED ended = nullptr;
            DWORD error = GetQueuedCompletionStatus(port_, &bytes, &key, &ended, SOON) ? 0 : GetLastError();
            if (ended == nullptr) {
                CHECK_IS(error, 0);
                // The next one is to hear of it, too.
                CHECK(PostQueuedCompletionStatus(port_, 0, 0, nullptr));
                return;
            }
            if (error != 0) {
                // The socket's own code.
                DWORD flags = 0;
                if (!WSAGetOverlappedResult(static_cast<SOCKET>(key), ended, &bytes, FALSE, &flags) &&
                    WSAGetLastError() != WSAENOTSOCK)
                    error = static_cast<DWORD>(WSAGetLastError());
            }
            static_cast<Operation *>(ended)->complete(error, bytes);
        }
    }

    void stop() { CHECK(PostQueuedCompletionStatus(port_, 0, 0, nullptr)); }

private:
    HANDLE port_;
};

LPFN_CONNECTEX connect_ex(SOCKET s)
{
    GUID guid = WSAID_CONNECTEX;
    LPFN_CONNECTEX function = nullptr;
    DWORD bytes = 0;
    CHECK_IS(WSAIoctl(s, SIO_GET_EXTENSION_FUNCTION_POINTER, &guid, sizeof guid, &function, sizeof function, &bytes,
                      nullptr, nullptr), 0);
    CHECK(function != nullptr);
    return function;
}

// Immediate results also make packets, so that only runners call handlers.
class Connection {
public:
    explicit Connection(Proactor &proactor)
        : proactor_(proactor), socket_(WSASocketW(AF_INET, SOCK_STREAM, IPPROTO_TCP, nullptr, 0, WSA_FLAG_OVERLAPPED))
    {
        CHECK(socket_ != INVALID_SOCKET);
        proactor_.add(socket_);
    }
    Connection(const Connection &) = delete;
    Connection &operator=(const Connection &) = delete;

    ~Connection()
    {
        // There may be nothing in flight.
        CHECK(CancelIoEx(reinterpret_cast<HANDLE>(socket_), nullptr) || GetLastError() == ERROR_NOT_FOUND);
        CHECK_IS(closesocket(socket_), 0);
    }

    void connect(const sockaddr_in &to, Handler handler)
    {
        bind_to_loopback(socket_); // as ConnectEx demands
        start(std::move(handler), [&](LPOVERLAPPED overlapped) {
            return connect_ex(socket_)(socket_, reinterpret_cast<const sockaddr *>(&to), sizeof to, nullptr, 0, nullptr,
                                       overlapped) != FALSE;
        });
    }

    // From here on it is as any other socket: it has a peer, and may be shut.
    void is_connected()
    {
        CHECK_IS(setsockopt(socket_, SOL_SOCKET, SO_UPDATE_CONNECT_CONTEXT, nullptr, 0), 0);
        sockaddr_in peer{};
        int size = sizeof peer;
        CHECK_IS(getpeername(socket_, reinterpret_cast<sockaddr *>(&peer), &size), 0);
    }

    void read(char *bytes, std::size_t room, Handler handler)
    {
        WSABUF buffer{static_cast<ULONG>(room), bytes};
        DWORD flags = 0;
        start(std::move(handler), [&](LPOVERLAPPED overlapped) {
            return WSARecv(socket_, &buffer, 1, nullptr, &flags, overlapped, nullptr) == 0;
        });
    }

    void write(std::string &bytes, Handler handler)
    {
        WSABUF buffer{static_cast<ULONG>(bytes.size()), &bytes[0]};
        start(std::move(handler), [&](LPOVERLAPPED overlapped) {
            return WSASend(socket_, &buffer, 1, nullptr, 0, overlapped, nullptr) == 0;
        });
    }

    SOCKET handle() const { return socket_; }

private:
    template <typename Call> void start(Handler handler, Call call)
    {
        auto operation = std::make_unique<Operation>(std::move(handler));
        if (call(operation.get()) || WSAGetLastError() == WSA_IO_PENDING) {
            static_cast<void>(operation.release());
            return;
        }
        // Nothing is in flight, and no packet comes: one is posted.
        DWORD error = static_cast<DWORD>(WSAGetLastError());
        auto failed = std::make_shared<std::unique_ptr<Operation>>(std::move(operation));
        proactor_.post([failed, error](DWORD, DWORD) { failed->release()->complete(error, 0); });
    }

    Proactor &proactor_;
    SOCKET socket_;
};

// ---- the program on top: clients of an echo server ----------------------------------------------------

struct Counts {
    std::atomic<int> echoed{0}, aborted{0}, refused{0}, ended{0};
};

// Its handlers keep it alive while one of them is pending.
class Client : public std::enable_shared_from_this<Client> {
public:
    Client(Proactor &proactor, Counts &counts, int number)
        : connection_(std::make_unique<Connection>(proactor)), counts_(counts), number_(number)
    {
    }
    Client(const Client &) = delete;
    Client &operator=(const Client &) = delete;
    ~Client() { counts_.ended++; }

    void begin(const sockaddr_in &server)
    {
        auto self = shared_from_this();
        connection_->connect(server, [self](DWORD error, DWORD) {
            if (error != 0) {
                CHECK_IS(error, WSAECONNREFUSED);
                self->counts_.refused++;
                return;
            }
            self->connection_->is_connected();
            self->says();
        });
    }

private:
    void says()
    {
        auto self = shared_from_this();
        if (said_++ == echoes) {
            leaves();
            return;
        }
        text_ = "client " + std::to_string(number_) + " says " + std::to_string(said_);
        connection_->write(text_, [self](DWORD error, DWORD bytes) {
            CHECK_IS(error, 0);
            CHECK_IS(bytes, self->text_.size());
            self->heard_.clear();
            self->listens();
        });
    }

    void listens()
    {
        auto self = shared_from_this();
        connection_->read(room_, sizeof room_, [self](DWORD error, DWORD bytes) {
            CHECK_IS(error, 0);
            CHECK(bytes > 0);
            self->heard_.append(self->room_, bytes);
            if (self->heard_.size() < self->text_.size()) {
                self->listens();
                return;
            }
            CHECK(self->heard_ == self->text_);
            self->counts_.echoed++;
            self->says();
        });
    }

    // Every other one with a read in flight, which nothing answers: the destructor of its connection cancels it.
    void leaves()
    {
        if (number_ % 2 != 0) {
            auto self = shared_from_this();
            connection_->read(room_, sizeof room_, [self](DWORD error, DWORD bytes) {
                CHECK_IS(error, WSA_OPERATION_ABORTED);
                CHECK_IS(bytes, 0);
                self->counts_.aborted++;
            });
        }
        connection_.reset();
    }

    std::unique_ptr<Connection> connection_;
    Counts &counts_;
    int number_, said_ = 0;
    std::string text_, heard_;
    char room_[16];
};

// Answers each client in turn with what that has said, until it has gone.
void echo_server(SOCKET listener, int clients)
{
    for (int client = 0; client < clients; client++) {
        SOCKET s = accept(listener, nullptr, nullptr);
        CHECK(s != INVALID_SOCKET);
        for (;;) {
            char bytes[64];
            int count = static_cast<int>(recv(s, bytes, sizeof bytes, 0));
            if (count <= 0)
                break; // ended, or reset
            send_all(s, bytes, count);
        }
        CHECK_IS(closesocket(s), 0);
    }
}

} // namespace

int main()
{
    start();
    {
        Proactor proactor;
        Counts counts;
        const int clients = connections_of_test();
        sockaddr_in server{};
        SOCKET listener = tcp_listener(&server), keeps_it_free;
        std::thread echo(echo_server, listener, clients);
        std::vector<std::thread> threads;
        for (int number = 0; number < runners; number++)
            threads.emplace_back([&proactor] { proactor.run(); });
        // At most a hundred at the same time, as many as the listener's queue holds.
        for (int number = 0; number < clients; number++) {
            while (number - counts.ended.load() >= 100)
                std::this_thread::yield();
            std::make_shared<Client>(proactor, counts, number)->begin(server);
        }
        while (counts.ended.load() < clients)
            std::this_thread::yield();
        CHECK_IS(counts.echoed.load(), clients * echoes);
        CHECK_IS(counts.aborted.load(), clients / 2);
        // Nothing listens there.
        sockaddr_in nobody = an_address_that_refuses(&keeps_it_free);
        std::make_shared<Client>(proactor, counts, clients)->begin(nobody);
        while (counts.refused.load() == 0)
            std::this_thread::yield();
        proactor.stop();
        for (auto &thread : threads)
            thread.join();
        echo.join();
        CHECK_IS(closesocket(listener), 0);
        CHECK_IS(closesocket(keeps_it_free), 0);
        CHECK_IS(Operation::living.load(), 0);
    }
    return finish();
}
