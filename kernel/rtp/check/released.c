// SPDX-License-Identifier: GPL-2.0
/*
 * Pages that the source has released: a header of the caller's that becomes unreadable in the
 * middle of a batch (EFAULT) ends the source while whole packets wait in the batch. They are still
 * sent, from pages that nobody but the engine may hold by then: pages of an O_DIRECT read, of
 * procfs and of sysfs go with the pipe; pages of the page cache go when the file is truncated,
 * for which a blocking socket with a full buffer leaves all the time one wants.
 *
 * Each kind of source is sent twice: to the loopback, and to a full socket on dummy0 while another
 * process truncates the file and fills all memory it can have with bytes of its own. All packets
 * before the bad header must arrive with the source's bytes. Without a reference, a stock kernel
 * warns in skbuff.c and nothing arrives, or foreign bytes do; KASAN reports the use of a free page.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <netinet/in.h>
#include <netpacket/packet.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#define MS		1000000ull
#define PAGE		4096
#define PACKETS_MAX	8
#define FRAME_HEADERS	(14 + 20 + 8)	/* Ethernet, IPv4, UDP */
#define FOREIGN_BYTES	(48 << 20)	/* more than the lists of free pages hold */
#define NEIGHBOUR	"10.9.0.78"
#define PORT		5006
/* Questions for a neighbour's address, one a second: more than a busy host takes for a round. */
#define SOLICIT		"/proc/sys/net/ipv4/neigh/dummy0/mcast_solicit"

/**
 * struct kind - a source whose pages may go before the packets
 * @name: as results have it
 * @path: of a file of the kernel's; NULL for one of our own
 * @flags: of open(2)
 * @memory: sent from a mapping
 * @payload_bytes: of a packet
 * @packets: before the bad header
 */
struct kind {
	const char *name;
	const char *path;
	int flags;
	bool memory;
	uint16_t payload_bytes;
	uint32_t packets;
};

static const struct kind kinds[] = {
	{ "page cache", NULL, 0, false, 1316, 5 },
	{ "mapped memory", NULL, 0, true, 1316, 5 },
	{ "O_DIRECT", NULL, O_DIRECT, false, 1316, 5 },
	{ "procfs", "/proc/filesystems", 0, false, 16, 5 },
	{ "sysfs", "/sys/module/pagewire_rtp/parameters/sessions_total", 0, false, 1, 3 },
};

/* A source that is open, and what must arrive. */
struct source {
	const struct kind *kind;
	int file;
	char path[NAME_BYTES + 16];
	uint8_t *map;
	uint8_t *headers;	/* @packets are readable */
	uint8_t expected[PACKETS_MAX * (RTP_BYTES + 1316)];
	size_t expected_bytes;
};

/* Headers that end where memory ends. */
static uint8_t *headers_before_a_hole(uint32_t packets)
{
	uint8_t *pages = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint8_t *headers = pages + PAGE - packets * RTP_BYTES;
	uint32_t index;

	if (pages == MAP_FAILED || mprotect(pages + PAGE, PAGE, PROT_NONE))
		fatal("a page that cannot be read");
	for (index = 0; index < packets * RTP_BYTES; index++)
		headers[index] = 0x80 + index;
	return headers;
}

static void headers_free(struct source *source)
{
	munmap((void *)((uintptr_t)source->headers & ~(uintptr_t)(PAGE - 1)), 2 * PAGE);
}

/* False when this machine does not have it. */
static bool source_open(struct source *source, const struct kind *kind)
{
	size_t bytes = (kind->packets + 1) * kind->payload_bytes;
	uint8_t text[PACKETS_MAX * 1316];
	uint32_t index;

	source->kind = kind;
	source->map = NULL;
	source->path[0] = 0;
	if (!kind->path) {
		snprintf(source->path, sizeof(source->path), "%s.released", world.path);
		close(world_file(source->path, 4 * PAGE));
	}
	source->file = open(kind->path ? kind->path : source->path,
			    (kind->path ? O_RDONLY : O_RDWR) | O_CLOEXEC);
	if (source->file < 0 || pread(source->file, text, bytes, 0) <
				(ssize_t)(kind->packets * kind->payload_bytes + 1))
		return false;
	if (kind->flags && fcntl(source->file, F_SETFL, kind->flags))
		return false;
	if (kind->memory) {
		source->map = mmap(NULL, 4 * PAGE, PROT_READ, MAP_SHARED, source->file, 0);
		if (source->map == MAP_FAILED)
			fatal("mapping the file");
	}
	source->headers = headers_before_a_hole(kind->packets);
	source->expected_bytes = 0;
	for (index = 0; index < kind->packets; index++) {
		uint8_t *at = source->expected + source->expected_bytes;

		memcpy(at, source->headers + index * RTP_BYTES, RTP_BYTES);
		memcpy(at + RTP_BYTES, text + index * kind->payload_bytes, kind->payload_bytes);
		source->expected_bytes += RTP_BYTES + kind->payload_bytes;
	}
	return true;
}

static void source_close(struct source *source)
{
	if (source->map)
		munmap(source->map, 4 * PAGE);
	if (source->file >= 0)
		close(source->file);
	if (source->path[0])
		unlink(source->path);
}

/* One packet more than there are headers, and room for all of them in one batch. */
static struct pagewire_rtp_send request_of(const struct source *source, int socket)
{
	const struct kind *kind = source->kind;

	return (struct pagewire_rtp_send){
		.file_fd = kind->memory ? -1 : source->file,
		.socket_fd = socket,
		.offset = (uintptr_t)source->map,
		.length = (kind->packets + 1) * kind->payload_bytes,
		.payload_bytes = kind->payload_bytes,
		.source = kind->memory ? PAGEWIRE_RTP_FROM_MEMORY : PAGEWIRE_RTP_FROM_FILE,
		.header = PAGEWIRE_RTP_HEADER_CALLER,
		.headers = (uintptr_t)source->headers,
		.header_bytes = RTP_BYTES,
		.packets = kind->packets + 1,
		.segments = PACKETS_MAX,
	};
}

/* Over the loopback: what was released is free at once, and may be anything by then. */
static void check_at_once(const struct kind *kind)
{
	static uint8_t datagram[2048];
	struct pagewire_rtp_send send;
	uint32_t index, right = 0;
	struct source source;
	int number;

	world_drain(world.receiver);
	if (!source_open(&source, kind)) {
		tap_skip("this kernel has no such file", "released at once: %s", kind->name);
		source_close(&source);
		return;
	}
	send = request_of(&source, world.sender);
	number = send_errno(&send);
	for (index = 0; index < kind->packets; index++) {
		size_t bytes = RTP_BYTES + kind->payload_bytes;

		right += recv(world.receiver, datagram, sizeof(datagram), MSG_DONTWAIT) ==
				 (ssize_t)bytes &&
			 !memcmp(datagram, source.expected + index * bytes, bytes);
	}
	ok(!number && send.sent_packets == kind->packets && right == kind->packets,
	   "released at once: %s: errno %d, %u of %u packets right", kind->name, number, right,
	   kind->packets);
	headers_free(&source);
	source_close(&source);
	world_drain(world.receiver);
}

/* A connected socket whose buffer is full of datagrams that wait for a neighbour's address. */
static int full_socket(void)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(PORT) };
	int full = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), bytes = 1;

	inet_pton(AF_INET, NEIGHBOUR, &to.sin_addr);
	setsockopt(full, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
	if (full < 0 || connect(full, (void *)&to, sizeof(to)))
		fatal("connecting over dummy0");
	while (send(full, "", 1, MSG_DONTWAIT) == 1)
		;
	if (errno != EAGAIN)
		fatal("filling a socket");
	return full;
}

/* The neighbour's address is known from now on, or no more. */
static void neighbour(int socket, unsigned long command)
{
	struct arpreq entry = { .arp_flags = ATF_PERM | ATF_COM, .arp_dev = "dummy0" };
	struct sockaddr_in *at = (struct sockaddr_in *)&entry.arp_pa;

	at->sin_family = AF_INET;
	inet_pton(AF_INET, NEIGHBOUR, &at->sin_addr);
	entry.arp_ha.sa_family = ARPHRD_ETHER;
	memset(entry.arp_ha.sa_data, 2, ETH_ALEN);
	if (ioctl(socket, command, &entry))
		fatal(NEIGHBOUR);
}

static void address_resolution(int socket, bool on)
{
	struct ifreq ask = { .ifr_name = "dummy0" };

	if (ioctl(socket, SIOCGIFFLAGS, &ask))
		fatal("dummy0");
	ask.ifr_flags = on ? ask.ifr_flags & ~IFF_NOARP : ask.ifr_flags | IFF_NOARP;
	ioctl(socket, SIOCSIFFLAGS, &ask);
}

/* Packets that leave by dummy0. */
static int open_tap(void)
{
	struct sockaddr_ll at = { .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL),
				  .sll_ifindex = if_nametoindex("dummy0") };
	struct timeval limit = { .tv_sec = 5 };
	int tap = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, htons(ETH_P_ALL));

	if (tap < 0 || bind(tap, (void *)&at, sizeof(at)))
		fatal("a packet socket on dummy0");
	setsockopt(tap, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	return tap;
}

/* Payload of datagrams to our port, until there is as much as was wanted; the rest is filling. */
static size_t tapped(int tap, uint8_t *bytes, size_t wanted)
{
	static uint8_t frame[65536];
	size_t got = 0;

	while (got < wanted) {
		ssize_t length = recv(tap, frame, sizeof(frame), 0);

		if (length < 0)
			break;
		if (length <= FRAME_HEADERS + 1 || frame[12] != 8 || frame[13] ||
		    frame[36] * 256 + frame[37] != PORT)
			continue;
		length -= FRAME_HEADERS;
		if ((size_t)length > wanted - got)
			length = wanted - got;
		memcpy(bytes + got, frame + FRAME_HEADERS, length);
		got += length;
	}
	return got;
}

static bool is_asleep(pid_t child)
{
	char path[32], text[256] = "", *at;
	int file;

	snprintf(path, sizeof(path), "/proc/%d/stat", child);
	file = open(path, O_RDONLY | O_CLOEXEC);
	if (file < 0 || read(file, text, sizeof(text) - 1) <= 0)
		fatal(path);
	close(file);
	at = strrchr(text, ')');
	return at && at[1] == ' ' && at[2] == 'S';
}

/* Sends to the full socket from a process of its own, and waits until that sleeps in the call. */
static pid_t sender_that_waits(const struct source *source, int full)
{
	uint64_t end = now_ns() + 5000 * MS;
	pid_t child = fork();

	if (child < 0)
		fatal("fork");
	if (!child) {
		struct pagewire_rtp_send send = request_of(source, full);
		int number = send_errno(&send);

		_exit(number ? number : send.sent_packets == source->kind->packets ? 0 : 255);
	}
	sleep_ns(20 * MS);
	while (!is_asleep(child) && now_ns() < end)
		sleep_ns(MS);
	return child;
}

static void check_while_it_waits(const struct kind *kind, int tap)
{
	static uint8_t bytes[PACKETS_MAX * (RTP_BYTES + 1316)];
	int full, status = 0;
	struct source source;
	uint8_t *foreign;
	pid_t child;
	size_t got;

	if (!source_open(&source, kind)) {
		tap_skip("this kernel has no such file", "released meanwhile: %s", kind->name);
		source_close(&source);
		return;
	}
	full = full_socket();
	child = sender_that_waits(&source, full);
	if (!kind->path && ftruncate(source.file, 0))
		fatal("truncating the file");
	foreign = mmap(NULL, FOREIGN_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		       -1, 0);
	if (foreign == MAP_FAILED)
		fatal("memory");
	memset(foreign, 0x5a, FOREIGN_BYTES);
	neighbour(full, SIOCSARP);
	got = tapped(tap, bytes, source.expected_bytes);
	waitpid(child, &status, 0);
	ok(WIFEXITED(status) && !WEXITSTATUS(status) && got == source.expected_bytes &&
	   !memcmp(bytes, source.expected, got),
	   "released meanwhile: %s: status %d, %zu of %zu bytes arrived, %s", kind->name, status,
	   got, source.expected_bytes,
	   memcmp(bytes, source.expected, got) ? "some foreign" : "all the source's");
	neighbour(full, SIOCDARP);
	munmap(foreign, FOREIGN_BYTES);
	close(full);
	headers_free(&source);
	source_close(&source);
}

void check_released(void)
{
	struct pagewire_rtp_send send = request_file(0, 1, 1);
	cpu_set_t former, one;
	char solicit[16];
	size_t index;
	int tap;

	send.segments = 2;
	if (send_errno(&send) == EOPNOTSUPP) {
		tap_skip("no UDP_SEGMENT in this kernel's engine", "pages that were released");
		return;
	}
	for (index = 0; index < ARRAY_SIZE(kinds); index++)
		check_at_once(&kinds[index]);
	if (getpid() != 1 || !if_nametoindex("dummy0")) {
		tap_skip("needs dummy0 of a machine of its own", "pages released meanwhile");
		return;
	}
	/* Free pages are a processor's own at first: who frees and who takes must share one. */
	sched_getaffinity(0, sizeof(former), &former);
	CPU_ZERO(&one);
	CPU_SET(0, &one);
	sched_setaffinity(0, sizeof(one), &one);
	snprintf(solicit, sizeof(solicit), "%ld", number_in(SOLICIT, ""));
	write_file(SOLICIT, "1000");
	tap = open_tap();
	address_resolution(tap, true);
	for (index = 0; index < ARRAY_SIZE(kinds); index++)
		check_while_it_waits(&kinds[index], tap);
	address_resolution(tap, false);
	write_file(SOLICIT, solicit);
	close(tap);
	sched_setaffinity(0, sizeof(former), &former);
}
