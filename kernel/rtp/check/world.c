// SPDX-License-Identifier: GPL-2.0
/* Fixture of the check: the device, a file of known bytes on tmpfs, sockets on the loopback. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

#define DRAIN_MAX	200000	/* datagrams, more than the buffer holds */
#define RECEIVE_BYTES	(64 << 20)	/* of buffer, where one may have as many */

struct world world;

uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

void sleep_ns(uint64_t ns)
{
	struct timespec span = { ns / 1000000000, ns % 1000000000 };

	while (nanosleep(&span, &span) && errno == EINTR)
		;
}

/* A number from a file of lines like `UDP: inuse 3 mem 0`: the first after the words in key. */
long number_in(const char *path, const char *key)
{
	char text[8192];
	const char *at;
	int file = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t length = file < 0 ? -1 : read(file, text, sizeof(text) - 1);

	if (file >= 0)
		close(file);
	if (length < 0)
		return -1;
	text[length] = 0;
	at = *key ? strstr(text, key) : text;
	return at ? strtol(at + strlen(key), NULL, 10) : -1;
}

bool write_file(const char *path, const char *text)
{
	int file = open(path, O_WRONLY | O_CLOEXEC);
	bool written = file >= 0 && write(file, text, strlen(text)) == (ssize_t)strlen(text);

	if (file >= 0)
		close(file);
	return written;
}

/* A file of pseudo-random bytes, the same every time; returns it open for reading and writing. */
int world_file(const char *name, size_t bytes)
{
	uint64_t state = 0x9e3779b97f4a7c15;
	uint8_t *text = malloc(bytes);
	size_t at;
	int file = open(name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	if (file < 0 || !text)
		fatal(name);
	for (at = 0; at < bytes; at++) {
		if (at % 8 == 0) {
			state ^= state << 13;
			state ^= state >> 7;
			state ^= state << 17;
		}
		text[at] = state >> at % 8 * 8;
	}
	for (at = 0; at < bytes;) {
		ssize_t part = write(file, text + at, bytes - at);

		if (part <= 0)
			fatal(name);
		at += part;
	}
	free(text);
	return file;
}

/* Two UDP sockets on the loopback, connected to each other. */
void world_pair(int family, int *receiver, int *sender)
{
	struct sockaddr_in6 name6 = { .sin6_family = AF_INET6, .sin6_addr = in6addr_loopback };
	struct sockaddr_in name4 = { .sin_family = AF_INET,
				     .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct sockaddr *name = family == AF_INET ? (void *)&name4 : (void *)&name6;
	socklen_t length = family == AF_INET ? sizeof(name4) : sizeof(name6);
	int bytes = RECEIVE_BYTES;
	struct sockaddr_in6 at[2];
	int pair[2], index;

	for (index = 0; index < 2; index++) {
		socklen_t at_length = sizeof(at[0]);

		pair[index] = socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
		if (pair[index] < 0 || bind(pair[index], name, length) ||
		    getsockname(pair[index], (void *)&at[index], &at_length)) {
			*receiver = -1;
			*sender = -1;
			return;
		}
	}
	if (connect(pair[0], (void *)&at[1], length) || connect(pair[1], (void *)&at[0], length))
		fatal("connecting a pair");
	setsockopt(pair[0], SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof(bytes));
	setsockopt(pair[1], SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof(bytes));
	*receiver = pair[0];
	*sender = pair[1];
}

void world_drain(int receiver)
{
	uint32_t left = DRAIN_MAX;
	uint8_t byte;

	/* A session may send as fast as this takes. */
	while (left-- && (recv(receiver, &byte, 1, MSG_DONTWAIT) >= 0 || errno == ECONNREFUSED))
		;
}

/* A request as krtpsendfile's, to be changed by who asks. */
struct pagewire_rtp_send request_file(uint64_t offset, uint64_t length, uint16_t payload_bytes)
{
	return (struct pagewire_rtp_send){
		.file_fd = world.file,
		.socket_fd = world.sender,
		.offset = offset,
		.length = length,
		.payload_bytes = payload_bytes,
		.header = PAGEWIRE_RTP_HEADER_ENGINE,
		.payload_type = 33,
		.ssrc = 0x5eed1234,
		.timestamp_step = 3600,
	};
}

/* 0, or the errno of the call. */
int send_errno(struct pagewire_rtp_send *send)
{
	return ioctl(world.device, PAGEWIRE_RTP_SEND, send) ? errno : 0;
}

void world_open(void)
{
	const char *folder = getenv("TMPDIR");
	int writable, bytes;
	socklen_t length = sizeof(bytes);

	world.root = geteuid() == 0;
	world.device = open("/dev/pagewire_rtp", O_RDWR | O_CLOEXEC);
	if (world.device < 0)
		fatal("/dev/pagewire_rtp (is the module loaded, and is this user in its group?)");
	snprintf(world.path, sizeof(world.path), "%s/pagewire_rtp_check", folder ? folder : "/tmp");
	world.file_bytes = PACKETS * 1500ul + 12345;
	writable = world_file(world.path, world.file_bytes);
	close(writable);
	world.file = open(world.path, O_RDONLY | O_CLOEXEC);
	world.bytes = malloc(world.file_bytes);
	if (world.file < 0 || !world.bytes ||
	    read(world.file, world.bytes, world.file_bytes) != (ssize_t)world.file_bytes)
		fatal(world.path);
	world.map = mmap(NULL, world.file_bytes, PROT_READ, MAP_SHARED, world.file, 0);
	if (world.map == MAP_FAILED)
		fatal("mapping the file");
	world_pair(AF_INET, &world.receiver, &world.sender);
	if (world.receiver < 0)
		fatal("a socket on 127.0.0.1");
	getsockopt(world.receiver, SOL_SOCKET, SO_RCVBUF, &bytes, &length);
	/* The stack charges a buffer with what an sk_buff takes, not with what is in it. */
	world.call_packets = bytes / 4096 < PACKETS ? bytes / 4096 : PACKETS;
	tap_note("receive buffer %d bytes: %d packets a call", bytes, world.call_packets);
}
