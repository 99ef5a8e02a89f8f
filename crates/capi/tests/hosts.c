/* Host names, and socket addresses as text: Winsock's codes, which are also the last error. */
#include <winsock2.h>
#include <iphlpapi.h>
#include <ws2tcpip.h>
#include <windows.h>

#include "check.h"

#define CHECK_CODE(call, code) \
    (WSASetLastError(0), CHECK_IS((call), (code)), CHECK_IS(WSAGetLastError(), (code)))

static struct addrinfo numeric(int flags)
{
    struct addrinfo hints;
    memset(&hints, 0, sizeof hints);
    hints.ai_family = AF_INET;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = flags;
    return hints;
}

static void an_address_is_found_by_its_text(void)
{
    struct addrinfo hints = numeric(AI_NUMERICHOST), *found = NULL;
    struct sockaddr_in address;
    CHECK_IS(getaddrinfo("127.0.0.1", "80", &hints, &found), 0);
    CHECK(found != NULL);
    CHECK_IS(found->ai_family, AF_INET);
    CHECK_IS(found->ai_addrlen, sizeof address);
    memcpy(&address, found->ai_addr, sizeof address);
    CHECK(address.sin_port == htons(80) && address.sin_addr.s_addr == htonl(INADDR_LOOPBACK));
    freeaddrinfo(found);
    CHECK_IS(getaddrinfo("localhost", NULL, NULL, &found), 0);
    freeaddrinfo(found);
}

static void a_name_that_is_not_there_has_winsocks_code(void)
{
    struct addrinfo hints = numeric(AI_NUMERICHOST), *found = &hints;
    PADDRINFOA in_use = &hints;
    CHECK_CODE(getaddrinfo("nothing", NULL, &hints, &found), WSAHOST_NOT_FOUND);
    CHECK(found == NULL);
    CHECK_CODE(getaddrinfo(NULL, NULL, &hints, &found), EAI_NONAME);
    CHECK_CODE(getaddrinfo("127.0.0.1", "there is no such service", &hints, &found), WSATYPE_NOT_FOUND);
    CHECK_CODE(getaddrinfo("127.0.0.1", "80", &hints, NULL), WSAEFAULT);
    hints.ai_family = 999;
    CHECK_CODE(getaddrinfo("127.0.0.1", "80", &hints, &found), EAI_FAMILY);
    hints = numeric(0x40000000);
    CHECK_CODE(getaddrinfo("127.0.0.1", "80", &hints, &found), EAI_BADFLAGS);
    hints = numeric(AI_NUMERICHOST);
    hints.ai_socktype = 999;
    CHECK_CODE(getaddrinfo("127.0.0.1", "80", &hints, &found), EAI_SOCKTYPE);
    hints = numeric(AI_NUMERICHOST);
    hints.ai_next = in_use;
    CHECK_CODE(getaddrinfo("127.0.0.1", "80", &hints, &found), EAI_FAIL);

    CHECK_IS(EAI_NONAME, 11001);
    CHECK_IS(EAI_AGAIN, 11002);
    CHECK_IS(EAI_FAIL, 11003);
    CHECK_IS(EAI_SERVICE, 10109);
    CHECK_IS(EAI_FAMILY, 10047);
    CHECK_IS(EAI_MEMORY, 8);
    CHECK(strlen(gai_strerror(EAI_NONAME)) > 10 && strlen(gai_strerrorA(EAI_SERVICE)) > 10);
    CHECK(strcmp(gai_strerror(EAI_NONAME), gai_strerrorA(WSATRY_AGAIN)) != 0);
    CHECK(gai_strerror(-12345) != NULL);
    CHECK((char)gai_strerrorW(EAI_NONAME)[3] == gai_strerrorA(EAI_NONAME)[3]);
}

static void an_address_has_a_name(void)
{
    struct sockaddr_in address = loopback();
    char node[NI_MAXHOST], service[NI_MAXSERV];
    WCHAR wide[64];
    SOCKADDR *it = (SOCKADDR *)&address;
    const int flags = NI_NUMERICHOST | NI_NUMERICSERV, size = (int)sizeof address;
    address.sin_port = htons(80);
    CHECK_IS(getnameinfo(it, size, node, sizeof node, service, sizeof service, flags), 0);
    CHECK(strcmp(node, "127.0.0.1") == 0 && strcmp(service, "80") == 0);
    CHECK_IS(GetNameInfoW(it, size, wide, 64, NULL, 0, flags), 0);
    CHECK(wcscmp(wide, L"127.0.0.1") == 0);
    CHECK_CODE(getnameinfo(it, size, node, 5, NULL, 0, flags), ERROR_INSUFFICIENT_BUFFER);
    CHECK_CODE(GetNameInfoW(it, size, wide, 5, NULL, 0, flags), ERROR_INSUFFICIENT_BUFFER);
    CHECK_CODE(getnameinfo(it, size, node, 0, NULL, 0, flags), WSAEINVAL);
    CHECK_CODE(GetNameInfoW(it, size, NULL, 0, wide, 0, flags), WSAEINVAL);
    CHECK_CODE(getnameinfo(NULL, size, node, sizeof node, NULL, 0, flags), WSAEFAULT);
    CHECK_CODE(GetNameInfoW(NULL, size, wide, 64, NULL, 0, flags), WSAEFAULT);
    CHECK_CODE(getnameinfo(it, 1, node, sizeof node, NULL, 0, flags), WSAEFAULT);
    /* A host that has no name, whether a name server answers or not. */
    address.sin_addr.s_addr = htonl(0xC0000201); /* 192.0.2.1 */
    CHECK_IS(getnameinfo(it, size, node, sizeof node, service, sizeof service, NI_NUMERICSERV), 0);
    CHECK(strcmp(node, "192.0.2.1") == 0 && strcmp(service, "80") == 0);
    CHECK(getnameinfo(it, size, node, sizeof node, NULL, 0, NI_NAMEREQD) != 0);
    address.sin_family = 999;
    CHECK_CODE(getnameinfo(it, size, node, sizeof node, NULL, 0, flags), WSAEAFNOSUPPORT);
}

static void wide_names_are_as_good(void)
{
    ADDRINFOW hints, *found = NULL, *it;
    struct sockaddr_in address;
    WCHAR endless[2000];
    size_t i;
    memset(&hints, 0, sizeof hints);
    hints.ai_family = AF_INET;
    hints.ai_flags = AI_NUMERICHOST | AI_CANONNAME;
    CHECK_IS(GetAddrInfoW(L"127.0.0.1", L"80", &hints, &found), 0);
    for (it = found; it != NULL; it = it->ai_next) {
        CHECK_IS(it->ai_family, AF_INET);
        CHECK_IS(it->ai_addrlen, sizeof address);
        memcpy(&address, it->ai_addr, sizeof address);
        CHECK(address.sin_port == htons(80) && address.sin_addr.s_addr == htonl(INADDR_LOOPBACK));
    }
    CHECK(found->ai_canonname != NULL && wcscmp(found->ai_canonname, L"127.0.0.1") == 0);
    FreeAddrInfoW(found);
    FreeAddrInfoW(NULL);
    CHECK_IS(GetAddrInfoW(NULL, L"80", NULL, &found), 0);
    FreeAddrInfoW(found);

    CHECK_CODE(GetAddrInfoW(L"nothing", NULL, &hints, &found), WSAHOST_NOT_FOUND);
    CHECK(found == NULL);
    for (i = 0; i < sizeof endless / sizeof *endless - 1; i++)
        endless[i] = L'x';
    endless[i] = L'\0';
    CHECK_CODE(GetAddrInfoW(endless, NULL, &hints, &found), WSAHOST_NOT_FOUND);
    CHECK_CODE(GetAddrInfoW(L"127.0.0.1", NULL, &hints, NULL), WSAEFAULT);
    hints.ai_addrlen = 1;
    CHECK_CODE(GetAddrInfoW(L"127.0.0.1", NULL, &hints, &found), WSANO_RECOVERY);
}

/* Checks the address that a text denotes, and the text made from it, in both widths. */
static void check_text(const char *text, int family, const char *again)
{
    union {
        struct sockaddr_in6 six;
        struct sockaddr_in four;
        struct sockaddr any;
    } address, wide_address;
    char narrow[100], back[100];
    WCHAR wide[100];
    INT size = (INT)sizeof address, wide_size = size;
    DWORD letters = sizeof back, needed = (DWORD)strlen(again) + 1, at;
    size_t i;
    memset(&address, 0xFF, sizeof address);
    memset(&wide_address, 0xFF, sizeof wide_address);
    strcpy(narrow, text);
    for (i = 0; i <= strlen(text); i++)
        wide[i] = (WCHAR)text[i];
    CHECK_IS(WSAStringToAddressA(narrow, family, NULL, &address.any, &size), 0);
    CHECK_IS(WSAStringToAddressW(wide, family, NULL, &wide_address.any, &wide_size), 0);
    CHECK_IS(size, family == AF_INET ? sizeof address.four : sizeof address.six);
    CHECK_IS(wide_size, size);
    CHECK(memcmp(&address, &wide_address, (size_t)size) == 0);
    CHECK_IS(address.any.sa_family, family);

    CHECK_IS(WSAAddressToStringA(&address.any, (DWORD)size, NULL, back, &letters), 0);
    CHECK_IS(letters, needed);
    CHECK(strcmp(back, again) == 0);
    /* One character less is too little, and the call reports the room needed. */
    letters = needed - 1;
    CHECK_SOCKET_ERROR(WSAAddressToStringA(&address.any, (DWORD)size, NULL, back, &letters), WSAEFAULT);
    CHECK_IS(letters, needed);
    letters = 0;
    CHECK_SOCKET_ERROR(WSAAddressToStringW(&address.any, (DWORD)size, NULL, NULL, &letters), WSAEFAULT);
    CHECK_IS(letters, needed);
    CHECK_IS(WSAAddressToStringW(&address.any, (DWORD)size, NULL, wide, &letters), 0);
    for (at = 0; at < needed; at++)
        CHECK_IS(wide[at], again[at]);
}

static void check_no_text(const char *text, int family)
{
    struct sockaddr_in6 address;
    char narrow[300];
    WCHAR wide[300];
    INT size = (INT)sizeof address;
    size_t i;
    strcpy(narrow, text);
    for (i = 0; i <= strlen(text); i++)
        wide[i] = (WCHAR)text[i];
    CHECK_SOCKET_ERROR(WSAStringToAddressA(narrow, family, NULL, (SOCKADDR *)&address, &size), WSAEINVAL);
    CHECK_SOCKET_ERROR(WSAStringToAddressW(wide, family, NULL, (SOCKADDR *)&address, &size), WSAEINVAL);
}

static void an_address_of_a_socket_is_text(void)
{
    static const char *const not_ipv4[] = {"", "1.2.3", "1.2.3.4:", "1.2.3.4:65536", "1.2.3.4:x", "1.2.3.4:-1",
                                           "1.2.3.256", " 1.2.3.4", "1.2.3.4 ", "::1", "1.2.3.4:80:80", "localhost"};
    static const char *const not_ipv6[] = {"", "1.2.3.4", "[::1", "::1]", "[::1]80", "[::1]:", "[::1]:65536", "::1%",
                                           "::1%x", "::1%4294967296", "[]:80", "1:2", ":::"};
    size_t i;
    char endless[200];
    check_text("1.2.3.4", AF_INET, "1.2.3.4");
    check_text("1.2.3.4:80", AF_INET, "1.2.3.4:80");
    check_text("255.255.255.255:65535", AF_INET, "255.255.255.255:65535");
    check_text("0.0.0.0:0", AF_INET, "0.0.0.0");
    check_text("::", AF_INET6, "::");
    check_text("[::1]", AF_INET6, "::1");
    check_text("[::1]:80", AF_INET6, "[::1]:80");
    check_text("fe80::1%2", AF_INET6, "fe80::1%2");
    check_text("[fe80::1%4294967295]:1", AF_INET6, "[fe80::1%4294967295]:1");
    check_text("1111:2222:3333:4444:5555:6666:7777:8888", AF_INET6, "1111:2222:3333:4444:5555:6666:7777:8888");
    for (i = 0; i < sizeof not_ipv4 / sizeof *not_ipv4; i++)
        check_no_text(not_ipv4[i], AF_INET);
    for (i = 0; i < sizeof not_ipv6 / sizeof *not_ipv6; i++)
        check_no_text(not_ipv6[i], AF_INET6);
    check_no_text("1.2.3.4", AF_UNSPEC);
    check_no_text("1.2.3.4", AF_UNIX);
    memset(endless, '1', sizeof endless);
    endless[sizeof endless - 1] = '\0';
    check_no_text(endless, AF_INET);
    check_no_text(endless, AF_INET6);
}

static void text_needs_a_place(void)
{
    struct sockaddr_in address = loopback();
    SOCKADDR *it = (SOCKADDR *)&address;
    char text[] = "1.2.3.4", back[50];
    INT size = (INT)sizeof address - 1;
    DWORD letters = sizeof back;
    CHECK_SOCKET_ERROR(WSAStringToAddressA(text, AF_INET, NULL, it, &size), WSAEFAULT);
    CHECK_IS(size, sizeof address);
    CHECK_SOCKET_ERROR(WSAStringToAddressA(NULL, AF_INET, NULL, it, &size), WSAEINVAL);
    CHECK_SOCKET_ERROR(WSAStringToAddressW(NULL, AF_INET, NULL, it, &size), WSAEINVAL);
    CHECK_SOCKET_ERROR(WSAStringToAddressA(text, AF_INET, NULL, NULL, &size), WSAEFAULT);
    CHECK_SOCKET_ERROR(WSAStringToAddressA(text, AF_INET, NULL, it, NULL), WSAEFAULT);
    CHECK_SOCKET_ERROR(WSAAddressToStringA(NULL, sizeof address, NULL, back, &letters), WSAEINVAL);
    CHECK_SOCKET_ERROR(WSAAddressToStringA(it, sizeof address - 1, NULL, back, &letters), WSAEINVAL);
    CHECK_SOCKET_ERROR(WSAAddressToStringA(it, 0, NULL, back, &letters), WSAEINVAL);
    CHECK_SOCKET_ERROR(WSAAddressToStringA(it, sizeof address, NULL, back, NULL), WSAEINVAL);
    CHECK_SOCKET_ERROR(WSAAddressToStringA(it, sizeof address, NULL, NULL, &letters), WSAEFAULT);
    CHECK_SOCKET_ERROR(WSAAddressToStringW(NULL, sizeof address, NULL, NULL, &letters), WSAEINVAL);
    address.sin_family = AF_UNIX;
    CHECK_SOCKET_ERROR(WSAAddressToStringA(it, sizeof address, NULL, back, &letters), WSAEINVAL);
}

/* The reference's names for the parts of an address, along with the system's. */
static void an_address_has_bytes_and_words(void)
{
    IN6_ADDR six;
    IN_ADDR four;
    struct sockaddr_in6 address;
    int i;
    CHECK_IS(sizeof six, 16);
    CHECK_IS(InetPtonA(AF_INET6, "102:304:506:708:90a:b0c:d0e:f10", &six), 1);
    for (i = 0; i < 16; i++) {
        CHECK_IS(six.u.Byte[i], i + 1);
        CHECK_IS(six.s6_addr[i], i + 1);
        CHECK_IS(six.s6_bytes[i], i + 1);
    }
    CHECK_IS(six.u.Word[1], htons(0x0304));
    CHECK_IS(six.s6_words[7], htons(0x0F10));
    memset(&address, 0, sizeof address);
    address.sin6_addr.u.Word[7] = htons(1);
    CHECK(IN6_IS_ADDR_LOOPBACK(&address.sin6_addr));
    address.sin6_addr = in6addr_any;
    CHECK(IN6_IS_ADDR_UNSPECIFIED(&address.sin6_addr));
    four.S_un.S_addr = htonl(0x01020304);
    CHECK_IS(four.S_un.S_un_b.s_b1, 1);
}

static PIP_ADAPTER_ADDRESSES adapters(ULONG family, ULONG flags)
{
    PIP_ADAPTER_ADDRESSES list = NULL;
    ULONG size = 0, code = ERROR_BUFFER_OVERFLOW;
    /* An interface may appear between two calls. */
    while (code == ERROR_BUFFER_OVERFLOW) {
        free(list);
        list = NULL;
        code = GetAdaptersAddresses(family, flags, NULL, NULL, &size);
        CHECK_IS(code, ERROR_BUFFER_OVERFLOW);
        CHECK(size >= sizeof *list);
        list = (PIP_ADAPTER_ADDRESSES)malloc(size);
        CHECK(list != NULL);
        code = GetAdaptersAddresses(family, flags, NULL, list, &size);
    }
    CHECK_IS(code, ERROR_SUCCESS);
    return list;
}

/* Every machine has the loopback interface and its address. */
static void the_adapters_have_their_addresses(void)
{
    PIP_ADAPTER_ADDRESSES list = adapters(AF_INET, 0), it, loop = NULL;
    PIP_ADAPTER_UNICAST_ADDRESS unicast;
    struct sockaddr_in address;
    char name[IF_NAMESIZE];
    ULONG size;
    size_t i;
    for (it = list; it != NULL; it = it->Next) {
        CHECK_IS(it->Length, sizeof *it);
        CHECK(it->IfIndex == if_nametoindex(it->AdapterName));
        CHECK(wcslen(it->Description) == strlen(it->AdapterName));
        CHECK(wcscmp(it->Description, it->FriendlyName) == 0 && it->DnsSuffix[0] == L'\0');
        for (i = 0; i <= strlen(it->AdapterName); i++)
            CHECK_IS(it->FriendlyName[i], it->AdapterName[i]);
        for (unicast = it->FirstUnicastAddress; unicast != NULL; unicast = unicast->Next)
            CHECK_IS(unicast->Address.lpSockaddr->sa_family, AF_INET);
        if (it->IfType == IF_TYPE_SOFTWARE_LOOPBACK)
            loop = it;
    }
    CHECK(loop != NULL && loop->FirstUnicastAddress != NULL);
    CHECK(if_indextoname(loop->IfIndex, name) != NULL && strcmp(name, loop->AdapterName) == 0);
    CHECK_IS(loop->OperStatus, IfOperStatusUp);
    CHECK_IS(loop->PhysicalAddressLength, 0);
    CHECK(loop->Flags & IP_ADAPTER_IPV4_ENABLED);
    unicast = loop->FirstUnicastAddress;
    CHECK_IS(unicast->Address.iSockaddrLength, sizeof address);
    memcpy(&address, unicast->Address.lpSockaddr, sizeof address);
    CHECK_IS(address.sin_addr.S_un.S_un_b.s_b1, 127);
    CHECK(unicast->OnLinkPrefixLength >= 8 && unicast->OnLinkPrefixLength <= 32);
    free(list);

    list = adapters(AF_UNSPEC, GAA_FLAG_SKIP_UNICAST | GAA_FLAG_SKIP_FRIENDLY_NAME);
    for (it = list; it != NULL; it = it->Next)
        CHECK(it->FirstUnicastAddress == NULL && it->FriendlyName == NULL);
    /* Never writes beyond the end of a buffer that is too small. */
    size = sizeof *list;
    it = (PIP_ADAPTER_ADDRESSES)malloc(size);
    CHECK_IS(GetAdaptersAddresses(AF_UNSPEC, 0, NULL, it, &size), ERROR_BUFFER_OVERFLOW);
    CHECK(size > sizeof *list);
    free(it);
    free(list);
    CHECK_IS(GetAdaptersAddresses(AF_UNSPEC, 0, NULL, NULL, NULL), ERROR_INVALID_PARAMETER);
    CHECK_IS(GetAdaptersAddresses(AF_UNIX, 0, NULL, NULL, &size), ERROR_INVALID_PARAMETER);
    free(adapters(AF_INET6, 0));
}

int main(void)
{
    start();
    an_address_is_found_by_its_text();
    a_name_that_is_not_there_has_winsocks_code();
    an_address_has_a_name();
    wide_names_are_as_good();
    an_address_of_a_socket_is_text();
    text_needs_a_place();
    an_address_has_bytes_and_words();
    the_adapters_have_their_addresses();
    return finish();
}
