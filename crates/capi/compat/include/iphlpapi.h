/*
 * iphlpapi.h: this machine's interfaces and their addresses: GetAdaptersAddresses.
 *
 * What differs: an adapter's name and both of its descriptions are the interface name. The lists of anycast and
 * multicast addresses, DNS servers, gateways and prefixes are empty.
 */
#ifndef CP_IPHLPAPI_H
#define CP_IPHLPAPI_H

#include <ifaddrs.h>
#include <net/if.h>
#include <netpacket/packet.h>
#include <stdio.h>

#include <winsock2.h>

/* ---- Types --------------------------------------------------------------------------------------------- */

#define GAA_FLAG_SKIP_UNICAST 0x0001
#define GAA_FLAG_SKIP_ANYCAST 0x0002
#define GAA_FLAG_SKIP_MULTICAST 0x0004
#define GAA_FLAG_SKIP_DNS_SERVER 0x0008
#define GAA_FLAG_INCLUDE_PREFIX 0x0010
#define GAA_FLAG_SKIP_FRIENDLY_NAME 0x0020
#define GAA_FLAG_INCLUDE_GATEWAYS 0x0080
#define GAA_FLAG_INCLUDE_ALL_INTERFACES 0x0100

#define IP_ADAPTER_NO_MULTICAST 0x0010
#define IP_ADAPTER_IPV4_ENABLED 0x0080
#define IP_ADAPTER_IPV6_ENABLED 0x0100

#define IF_TYPE_OTHER 1
#define IF_TYPE_ETHERNET_CSMACD 6
#define IF_TYPE_PPP 23
#define IF_TYPE_SOFTWARE_LOOPBACK 24
#define IF_TYPE_IEEE80211 71
#define IF_TYPE_TUNNEL 131

#define MAX_ADAPTER_ADDRESS_LENGTH 8

typedef ULONG IFTYPE, NET_IFINDEX, IF_INDEX;

typedef enum {
    IfOperStatusUp = 1,
    IfOperStatusDown,
    IfOperStatusTesting,
    IfOperStatusUnknown,
    IfOperStatusDormant,
    IfOperStatusNotPresent,
    IfOperStatusLowerLayerDown
} IF_OPER_STATUS;

typedef struct _SOCKET_ADDRESS {
    LPSOCKADDR lpSockaddr;
    INT iSockaddrLength;
} SOCKET_ADDRESS, *PSOCKET_ADDRESS, *LPSOCKET_ADDRESS;

typedef struct _IP_ADAPTER_UNICAST_ADDRESS {
    __extension__ union {
        ULONGLONG Alignment;
        __extension__ struct {
            ULONG Length;
            DWORD Flags;
        };
    };
    struct _IP_ADAPTER_UNICAST_ADDRESS *Next;
    SOCKET_ADDRESS Address;
    UINT8 OnLinkPrefixLength;
} IP_ADAPTER_UNICAST_ADDRESS, *PIP_ADAPTER_UNICAST_ADDRESS;

/* Lists of these are always empty. */
typedef struct _IP_ADAPTER_OTHER_ADDRESS {
    __extension__ union {
        ULONGLONG Alignment;
        __extension__ struct {
            ULONG Length;
            DWORD Reserved;
        };
    };
    struct _IP_ADAPTER_OTHER_ADDRESS *Next;
    SOCKET_ADDRESS Address;
    ULONG PrefixLength;
} IP_ADAPTER_ANYCAST_ADDRESS, *PIP_ADAPTER_ANYCAST_ADDRESS, IP_ADAPTER_MULTICAST_ADDRESS,
    *PIP_ADAPTER_MULTICAST_ADDRESS, IP_ADAPTER_DNS_SERVER_ADDRESS, *PIP_ADAPTER_DNS_SERVER_ADDRESS, IP_ADAPTER_PREFIX,
    *PIP_ADAPTER_PREFIX, IP_ADAPTER_GATEWAY_ADDRESS, *PIP_ADAPTER_GATEWAY_ADDRESS;

typedef struct _IP_ADAPTER_ADDRESSES {
    __extension__ union {
        ULONGLONG Alignment;
        __extension__ struct {
            ULONG Length;
            DWORD IfIndex;
        };
    };
    struct _IP_ADAPTER_ADDRESSES *Next;
    char *AdapterName;
    PIP_ADAPTER_UNICAST_ADDRESS FirstUnicastAddress;
    PIP_ADAPTER_ANYCAST_ADDRESS FirstAnycastAddress;
    PIP_ADAPTER_MULTICAST_ADDRESS FirstMulticastAddress;
    PIP_ADAPTER_DNS_SERVER_ADDRESS FirstDnsServerAddress;
    PWCHAR DnsSuffix;
    PWCHAR Description;
    PWCHAR FriendlyName;
    BYTE PhysicalAddress[MAX_ADAPTER_ADDRESS_LENGTH];
    ULONG PhysicalAddressLength;
    DWORD Flags;
    DWORD Mtu;
    IFTYPE IfType;
    IF_OPER_STATUS OperStatus;
    DWORD Ipv6IfIndex;
    DWORD ZoneIndices[16];
    PIP_ADAPTER_PREFIX FirstPrefix;
    ULONG64 TransmitLinkSpeed; /* in bits per second; all ones if unknown */
    ULONG64 ReceiveLinkSpeed;
    PIP_ADAPTER_GATEWAY_ADDRESS FirstGatewayAddress;
} IP_ADAPTER_ADDRESSES, *PIP_ADAPTER_ADDRESSES;

/* ---- The adapters ---------------------------------------------------------------------------------------- */

/* The caller's memory, from which pieces are allocated. Beyond its end pieces are NULL, but still counted. */
typedef struct cp_pieces {
    char *room;
    size_t size;
    size_t used;
} cp_pieces;

CP_INLINE void *cp_piece(cp_pieces *from, size_t size) {
    size_t at = from->used;
    from->used += (size + 7) & ~(size_t)7;
    return from->room && from->used <= from->size ? memset(from->room + at, 0, size) : NULL;
}

/* Reads a number that the system reports for an interface. */
CP_INLINE BOOL cp_interface_number(const char *name, const char *what, long *number) {
    char path[96];
    FILE *file;
    int found;
    snprintf(path, sizeof path, "/sys/class/net/%s/%s", name, what);
    file = fopen(path, "re");
    if (!file)
        return FALSE;
    found = fscanf(file, "%ld", number);
    fclose(file);
    return found == 1;
}

CP_INLINE PWCHAR cp_piece_of_text(cp_pieces *from, const char *text) {
    size_t length = strlen(text), at;
    PWCHAR wide = (PWCHAR)cp_piece(from, (length + 1) * sizeof(WCHAR));
    for (at = 0; wide && at < length; at++)
        wide[at] = (WCHAR)(unsigned char)text[at];
    return wide;
}

CP_INLINE INT cp_address_size(const struct sockaddr *address, ULONG family) {
    int known = address ? address->sa_family : AF_UNSPEC;
    if ((known != AF_INET && known != AF_INET6) || (family != AF_UNSPEC && family != (ULONG)known))
        return 0;
    return (INT)(known == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6));
}

/* The number of bits set in the mask. */
CP_INLINE UINT8 cp_prefix_length(const struct sockaddr *mask, INT size) {
    struct sockaddr_in6 six;
    struct sockaddr_in four;
    const unsigned char *bytes = (const unsigned char *)&six.sin6_addr;
    size_t count = sizeof six.sin6_addr, at;
    int bits = 0;
    if (!mask)
        return 0;
    if ((size_t)size == sizeof four) {
        memcpy(&four, mask, sizeof four);
        bytes = (const unsigned char *)&four.sin_addr;
        count = sizeof four.sin_addr;
    } else {
        memcpy(&six, mask, sizeof six);
    }
    for (at = 0; at < count; at++)
        bits += __builtin_popcount(bytes[at]);
    return (UINT8)bits;
}

CP_INLINE void cp_adapter_address(cp_pieces *from, const struct ifaddrs *it, INT size,
                                  PIP_ADAPTER_UNICAST_ADDRESS **end) {
    PIP_ADAPTER_UNICAST_ADDRESS unicast = (PIP_ADAPTER_UNICAST_ADDRESS)cp_piece(from, sizeof *unicast);
    void *address = cp_piece(from, (size_t)size);
    if (!unicast || !address)
        return;
    unicast->Length = sizeof *unicast;
    unicast->Address.lpSockaddr = (LPSOCKADDR)memcpy(address, it->ifa_addr, (size_t)size);
    unicast->Address.iSockaddrLength = size;
    unicast->OnLinkPrefixLength = cp_prefix_length(it->ifa_netmask, size);
    **end = unicast;
    *end = &unicast->Next;
}

/* Fills in the properties of the interface itself. The bits of `flags` are those of <net/if.h>, which plain C11 hides.
 * */
CP_INLINE void cp_adapter_describe(PIP_ADAPTER_ADDRESSES adapter, const char *name, unsigned flags) {
    long number;
    adapter->Length = sizeof *adapter;
    adapter->IfIndex = adapter->Ipv6IfIndex = if_nametoindex(name);
    adapter->IfType = flags & 0x8 ? IF_TYPE_SOFTWARE_LOOPBACK : flags & 0x10 ? IF_TYPE_PPP : IF_TYPE_ETHERNET_CSMACD;
    adapter->OperStatus = (flags & 0x41) == 0x41 ? IfOperStatusUp : IfOperStatusDown;
    adapter->Flags = flags & 0x1000 ? 0 : IP_ADAPTER_NO_MULTICAST;
    adapter->Mtu = cp_interface_number(name, "mtu", &number) ? (DWORD)number : 0;
    adapter->TransmitLinkSpeed = adapter->ReceiveLinkSpeed =
        cp_interface_number(name, "speed", &number) && number > 0 ? (ULONG64)number * 1000000 : ~(ULONG64)0;
}

CP_INLINE void cp_adapter(cp_pieces *from, ULONG family, ULONG skips, const struct ifaddrs *first,
                          PIP_ADAPTER_ADDRESSES **end) {
    PIP_ADAPTER_ADDRESSES adapter = (PIP_ADAPTER_ADDRESSES)cp_piece(from, sizeof *adapter);
    PIP_ADAPTER_UNICAST_ADDRESS unicasts = NULL, *last = &unicasts;
    char *name = (char *)cp_piece(from, strlen(first->ifa_name) + 1);
    PWCHAR suffix = cp_piece_of_text(from, ""), about = cp_piece_of_text(from, first->ifa_name);
    PWCHAR friendly = skips & GAA_FLAG_SKIP_FRIENDLY_NAME ? NULL : cp_piece_of_text(from, first->ifa_name);
    const struct ifaddrs *it;
    DWORD flags = 0;
    for (it = first; it; it = it->ifa_next) {
        INT size = cp_address_size(it->ifa_addr, family);
        if (strcmp(it->ifa_name, first->ifa_name) != 0)
            continue;
        if (size > 0)
            flags |= it->ifa_addr->sa_family == AF_INET ? IP_ADAPTER_IPV4_ENABLED : IP_ADAPTER_IPV6_ENABLED;
        if (size > 0 && !(skips & GAA_FLAG_SKIP_UNICAST))
            cp_adapter_address(from, it, size, &last);
        if (adapter && it->ifa_addr && it->ifa_addr->sa_family == AF_PACKET) {
            struct sockaddr_ll hardware;
            memcpy(&hardware, it->ifa_addr, sizeof hardware);
            if (hardware.sll_halen <= sizeof adapter->PhysicalAddress && !(it->ifa_flags & 0x8)) {
                memcpy(adapter->PhysicalAddress, hardware.sll_addr, hardware.sll_halen);
                adapter->PhysicalAddressLength = hardware.sll_halen;
            }
        }
    }
    if (!adapter || !name)
        return;
    cp_adapter_describe(adapter, first->ifa_name, first->ifa_flags);
    adapter->AdapterName = strcpy(name, first->ifa_name);
    adapter->DnsSuffix = suffix;
    adapter->Description = about;
    adapter->FriendlyName = friendly;
    adapter->FirstUnicastAddress = unicasts;
    adapter->Flags |= flags;
    **end = adapter;
    *end = &adapter->Next;
}

/* Lists every interface; the family selects the addresses. Returns the code. If there is too little room, that is
 * ERROR_BUFFER_OVERFLOW, and the size is set to the room needed. Leaves the last error unchanged. */
CP_INLINE ULONG WINAPI GetAdaptersAddresses(ULONG Family, ULONG Flags, PVOID Reserved,
                                            PIP_ADAPTER_ADDRESSES AdapterAddresses, PULONG SizePointer) {
    struct ifaddrs *all, *it, *before;
    PIP_ADAPTER_ADDRESSES first = NULL, *end = &first;
    cp_pieces pieces;
    (void)Reserved;
    if (!SizePointer || (Family != AF_UNSPEC && Family != AF_INET && Family != AF_INET6))
        return ERROR_INVALID_PARAMETER;
    pieces.room = (char *)AdapterAddresses;
    pieces.size = *SizePointer;
    pieces.used = 0;
    if (getifaddrs(&all) != 0)
        return ERROR_NOT_ENOUGH_MEMORY;
    for (it = all; it; it = it->ifa_next) {
        for (before = all; before != it && strcmp(before->ifa_name, it->ifa_name) != 0; before = before->ifa_next) {
        }
        if (before == it)
            cp_adapter(&pieces, Family, Flags, it, &end);
    }
    freeifaddrs(all);
    if (pieces.used == 0)
        return ERROR_NO_DATA;
    if (!AdapterAddresses || pieces.used > *SizePointer) {
        *SizePointer = (ULONG)pieces.used;
        return ERROR_BUFFER_OVERFLOW;
    }
    return ERROR_SUCCESS;
}

CP_EXPORTS_BEGIN(iphlpapi)
    CP_EXPORT("iphlpapi", GetAdaptersAddresses),
    CP_EXPORT("iphlpapi", if_indextoname),
    CP_EXPORT("iphlpapi", if_nametoindex),
CP_EXPORTS_END

#endif
