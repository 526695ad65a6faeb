// SPDX-License-Identifier: GPL-2.0
/*
 * Faults midway: signals, a file cut or unlinked, a socket disconnected or full, memory
 * short, many senders at once. Whatever was sent is right and counted; nothing is sent twice.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#define MS		1000000ull
#define PAYLOAD		1316
#define ALL_BYTES	(PACKETS * (uint64_t)PAYLOAD)

static uint8_t datagram[65536];

/* Only to have been called: what is checked is what a signal does to a call. */
static void on_signal(int number)
{
	(void)number;
}

/* Receives what is there; how many of the packets from number @first on are right, in order. */
static uint32_t received(int receiver, uint32_t first)
{
	uint32_t right = 0;

	for (;;) {
		const uint8_t *expected = world.bytes + (uint64_t)(first + right) * PAYLOAD;
		ssize_t length = recv(receiver, datagram, sizeof(datagram), MSG_DONTWAIT);

		if (length < 0)
			return right;
		if (length != RTP_BYTES + PAYLOAD ||
		    memcmp(datagram + RTP_BYTES, expected, PAYLOAD) ||
		    datagram[2] * 256 + datagram[3] != (uint16_t)(first + right))
			return right;
		right++;
	}
}

/* Signals every millisecond while everything is sent, by as many calls as it takes. */
static void check_signals(uint8_t source, uint8_t segments)
{
	struct itimerval often = { { 0, 1000 }, { 0, 1000 } }, never = { };
	struct sigaction action = { .sa_handler = on_signal };
	struct pagewire_rtp_send send = request_file(0, ALL_BYTES, PAYLOAD);
	uint32_t sent = 0, right = 0, calls = 0, interrupted = 0;

	if (source == PAGEWIRE_RTP_FROM_MEMORY) {
		send.source = source;
		send.file_fd = -1;
		send.offset = (uintptr_t)world.map;
	}
	send.segments = segments;
	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &often, NULL);
	while (sent < PACKETS) {
		int number = send_errno(&send);

		calls++;
		if (number == EINTR) {
			interrupted++;
			continue;
		}
		if (number || !send.sent_packets)
			break;
		send.offset += send.sent_bytes;
		send.length -= send.sent_bytes;
		right += received(world.receiver, sent);
		sent += send.sent_packets;
	}
	setitimer(ITIMER_REAL, &never, NULL);
	ok(sent == PACKETS && right == PACKETS,
	   "signals midway, from %s, segments %u: %u calls, %u interrupted, %u packets bad",
	   source ? "memory" : "a file", segments, calls, interrupted, PACKETS - right);
	world_drain(world.receiver);
}

/* Runs @body in a child that shares all descriptors, after a moment. */
static pid_t later(void (*body)(int), int argument)
{
	pid_t child = fork();

	if (child < 0)
		fatal("fork");
	if (!child) {
		sleep_ns(5 * MS);
		body(argument);
		_exit(0);
	}
	return child;
}

static void cut(int file)
{
	if (ftruncate(file, 3 * PAYLOAD + 100))
		_exit(1);
}

static void disconnect(int socket)
{
	struct sockaddr none = { .sa_family = AF_UNSPEC };

	connect(socket, &none, sizeof(none));
}

/*
 * Sends a file over and over until @stop; returns the last errno, 0 when a call sent less than
 * was asked because the file has become short.
 */
static int send_until(struct pagewire_rtp_send good, bool *all_counted)
{
	uint64_t end = now_ns() + 10000 * MS;
	int number = 0;

	*all_counted = true;
	while (now_ns() < end) {
		struct pagewire_rtp_send send = good;

		number = send_errno(&send);
		if (number || send.sent_bytes < 4 * PAYLOAD)
			break;
		*all_counted &= send.sent_packets == (send.sent_bytes + PAYLOAD - 1) / PAYLOAD;
		world_drain(world.receiver);
	}
	world_drain(world.receiver);
	return number;
}

static void check_cut(bool mapped)
{
	char path[NAME_BYTES + 8];
	struct pagewire_rtp_send send = request_file(0, 1000 * PAYLOAD, PAYLOAD);
	uint8_t *map;
	bool counted;
	int file, number;
	pid_t child;

	snprintf(path, sizeof(path), "%s.cut", world.path);
	file = world_file(path, 1000 * PAYLOAD);
	map = mmap(NULL, 1000 * PAYLOAD, PROT_READ, MAP_SHARED, file, 0);
	send.file_fd = mapped ? -1 : file;
	if (mapped) {
		send.source = PAGEWIRE_RTP_FROM_MEMORY;
		send.offset = (uintptr_t)map;
	}
	child = later(cut, file);
	number = send_until(send, &counted);
	waitpid(child, NULL, 0);
	ok(!number && counted, "a file cut midway, %s: a short count", mapped ? "mapped" : "sent");
	if (!mapped) {
		ok(!send_errno(&send) && send.sent_packets == 4 &&
		   send.sent_bytes == 3 * PAYLOAD + 100, "what is left of it is sent");
		send = request_file(4 * PAYLOAD, PAYLOAD, PAYLOAD);
		send.file_fd = file;
		ok(!send_errno(&send) && !send.sent_packets, "and nothing after it");
	} else {
		send.offset = (uintptr_t)map + 2 * 4096;
		ok(send_errno(&send) == EFAULT, "a mapping of what was cut off: EFAULT");
	}
	munmap(map, 1000 * PAYLOAD);
	unlink(path);
	close(file);
	world_drain(world.receiver);
}

static void check_unlinked(void)
{
	struct pagewire_rtp_send send = request_file(0, 500 * PAYLOAD, PAYLOAD);
	char path[NAME_BYTES + 8];

	snprintf(path, sizeof(path), "%s.gone", world.path);
	send.file_fd = world_file(path, 500 * PAYLOAD);
	send.length = 50 * PAYLOAD;
	unlink(path);
	ok(!send_errno(&send) && received(world.receiver, 0) == 50, "an unlinked file is sent");
	close(send.file_fd);
}

static void check_disconnected(void)
{
	struct pagewire_rtp_send send = request_file(0, ALL_BYTES, PAYLOAD);
	int receiver, sender;
	bool counted;
	pid_t child;

	world_pair(AF_INET, &receiver, &sender);
	close(receiver);
	send.socket_fd = sender;
	send.length = 10 * PAYLOAD;
	ok(!send_errno(&send) && send.sent_packets < 10,
	   "nobody there: a short count, of %llu packets", (unsigned long long)send.sent_packets);
	close(sender);

	world_pair(AF_INET, &receiver, &sender);
	send = request_file(0, ALL_BYTES, PAYLOAD);
	send.socket_fd = sender;
	child = later(disconnect, sender);
	ok(send_until(send, &counted) == EDESTADDRREQ && counted,
	   "disconnected midway: EDESTADDRREQ");
	waitpid(child, NULL, 0);
	close(receiver);
	close(sender);

	world_pair(AF_INET, &receiver, &sender);
	send.socket_fd = sender;
	shutdown(sender, SHUT_WR);
	ok(send_errno(&send) == EPIPE, "a socket shut down for writing: EPIPE, and no signal");
	close(receiver);
	close(sender);
}

/* A datagram begun by the caller that the payload makes too large: nothing of it is sent. */
static void check_too_large(void)
{
	struct pagewire_rtp_send send = request_file(0, PAGEWIRE_RTP_PAYLOAD_BYTES_MAX,
						     PAGEWIRE_RTP_PAYLOAD_BYTES_MAX);
	char header[100] = { };

	send.header = PAGEWIRE_RTP_HEADER_NONE;
	if (sendto(world.sender, header, sizeof(header), MSG_MORE, NULL, 0) < 0)
		fatal("sending a header");
	ok(send_errno(&send) == EMSGSIZE &&
	   recv(world.receiver, datagram, 1, MSG_DONTWAIT) < 0,
	   "payload too large for a datagram begun: EMSGSIZE, and nothing is sent");
	ok(!send_errno(&send) && recv(world.receiver, datagram, sizeof(datagram), MSG_DONTWAIT) ==
	   PAGEWIRE_RTP_PAYLOAD_BYTES_MAX, "and it is sent where nothing was begun");
}

/* Killed in the middle of a call that would take long. */
static void check_killed(void)
{
	pid_t child = fork();
	int status;

	if (!child) {
		struct pagewire_rtp_send send = request_file(0, ALL_BYTES, PAYLOAD);

		for (;;)
			if (ioctl(world.device, PAGEWIRE_RTP_SEND, &send) && errno != ENOBUFS)
				_exit(1);
	}
	sleep_ns(30 * MS);
	kill(child, SIGKILL);
	ok(waitpid(child, &status, 0) == child && WIFSIGNALED(status), "killed midway");
	world_drain(world.receiver);
}

/* Several processes send at once, each to its own socket; every byte compared. */
static void check_concurrent(void)
{
	pid_t child[4];
	int index, status, right = 0;

	for (index = 0; index < 4; index++) {
		child[index] = fork();
		if (!child[index]) {
			uint32_t first, packets, bad = 0;
			int receiver, sender;

			world_pair(AF_INET, &receiver, &sender);
			for (first = 0; first < PACKETS; first += packets) {
				struct pagewire_rtp_send send;

				packets = world.call_packets < 500 ? world.call_packets : 500;
				if (packets > PACKETS - first)
					packets = PACKETS - first;
				send = request_file((uint64_t)first * PAYLOAD,
						    packets * (uint64_t)PAYLOAD, PAYLOAD);
				send.socket_fd = sender;
				send.sequence = first;
				send.segments = index;
				if (send_errno(&send) == EOPNOTSUPP) {
					send.segments = 1;
					send_errno(&send);
				}
				bad += received(receiver, first) != packets;
			}
			_exit(bad != 0);
		}
	}
	for (index = 0; index < 4; index++) {
		waitpid(child[index], &status, 0);
		right += WIFEXITED(status) && !WEXITSTATUS(status);
	}
	ok(right == 4, "four senders at once, %d packets each: %d bad", PACKETS, 4 - right);
}

/*
 * A full send buffer: packets to a neighbour that does not answer wait in its queue and stay
 * charged to the socket. Only on a machine of our own, since dummy0 is made to ask for addresses.
 */
static void check_full(void)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(5004) };
	struct pagewire_rtp_send send = request_file(0, ALL_BYTES, PAYLOAD);
	struct pagewire_rtp_start start = { .interval_ns = 100000, .wake_packets = 1 };
	struct pagewire_rtp_status status;
	struct ifreq ask = { .ifr_name = "dummy0" };
	struct sigaction action = { .sa_handler = on_signal };
	struct itimerval once = { { 0, 0 }, { 0, 50000 } };
	int bytes = 1, full = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), number;

	if (getpid() != 1 || ioctl(full, SIOCGIFFLAGS, &ask)) {
		tap_skip("needs dummy0 of a machine of its own", "a full send buffer");
		close(full);
		return;
	}
	ask.ifr_flags &= ~IFF_NOARP;
	ioctl(full, SIOCSIFFLAGS, &ask);
	setsockopt(full, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
	inet_pton(AF_INET, "10.9.0.77", &to.sin_addr);
	if (connect(full, (void *)&to, sizeof(to)))
		fatal("connecting over dummy0");
	send.socket_fd = full;
	fcntl(full, F_SETFL, O_NONBLOCK);
	number = send_errno(&send);
	ok(!number && send.sent_packets > 0 && send.sent_packets < 100,
	   "a full buffer, non-blocking: a short count");
	send.sent_packets = 1;
	number = send_errno(&send);
	ok(number == EAGAIN, "and then EAGAIN");
	start.send = send;
	ok(!ioctl(world.device, PAGEWIRE_RTP_START, &start), "a session with it");
	sleep_ns(100 * MS);
	ioctl(world.device, PAGEWIRE_RTP_STATUS, &status);
	ok(status.state == PAGEWIRE_RTP_RUNNING && status.retries > 0,
	   "tries again and goes on, %llu times in 100 ms", (unsigned long long)status.retries);
	ioctl(world.device, PAGEWIRE_RTP_STOP);
	fcntl(full, F_SETFL, 0);
	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &once, NULL);
	number = send_errno(&send);
	ok(number == EINTR, "a full buffer, blocking: a signal ends the wait with EINTR");
	close(full);
	ask.ifr_flags |= IFF_NOARP;
	full = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	ioctl(full, SIOCSIFFLAGS, &ask);
	close(full);
}

/* Memory short: another process takes nearly all there is, in turns, while we send. */
static void check_pressure(void)
{
	long free_kib = number_in("/proc/meminfo", "MemAvailable:");
	size_t take = (size_t)(free_kib > 65536 ? free_kib - 49152 : 0) << 10;
	uint32_t right = 0, failed = 0, round;
	pid_t child;

	if (getpid() != 1 || !take) {
		tap_skip("needs a machine of its own", "memory pressure");
		return;
	}
	child = fork();
	if (!child) {
		for (;;) {
			uint8_t *all = mmap(NULL, take, PROT_READ | PROT_WRITE,
					    MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

			if (all != MAP_FAILED)
				munmap(all, take);
		}
	}
	for (round = 0; round < 400; round++) {
		struct pagewire_rtp_send send = request_file(0, 100 * PAYLOAD, PAYLOAD);

		send.segments = round % 3;
		if (send_errno(&send))
			failed++;
		else if (received(world.receiver, 0) == send.sent_packets)
			right++;
	}
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	ok(right + failed == 400 && right, "memory pressure: %u calls right, %u refused", right,
	   failed);
}

void check_faults(void)
{
	struct pagewire_rtp_send send = request_file(0, 1, 1);
	bool segments;

	world_drain(world.receiver);
	send.segments = 2;
	segments = send_errno(&send) != EOPNOTSUPP;
	world_drain(world.receiver);
	if (world.call_packets < PACKETS) {
		tap_skip("the receive buffer is root's to enlarge", "signals midway");
	} else {
		check_signals(PAGEWIRE_RTP_FROM_FILE, 1);
		check_signals(PAGEWIRE_RTP_FROM_MEMORY, 1);
		check_signals(PAGEWIRE_RTP_FROM_FILE, segments ? 7 : 1);
	}
	check_cut(false);
	check_cut(true);
	check_unlinked();
	check_disconnected();
	check_too_large();
	check_killed();
	check_concurrent();
	check_full();
	check_pressure();
}
