// SPDX-License-Identifier: GPL-2.0
/*
 * Every field out of range, every descriptor closed or of the wrong kind: the errno that the
 * interface's header names, and nothing sent.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"

#define PAGE_BYTES	4096

static struct pagewire_rtp_packet plan[3] = { { 100, 0, 0 }, { 200, 1, 0 }, { 300, 0, 9 } };
static uint8_t headers[3][RTP_BYTES];

static void expect(struct pagewire_rtp_send send, int number, const char *what)
{
	uint8_t byte;
	int found = send_errno(&send);

	ok(found == number && recv(world.receiver, &byte, 1, MSG_DONTWAIT) < 0,
	   "send, %s: %s%s%s", what, strerrorname_np(number) ?: "sent", found == number ? "" :
	   ", found ", found == number ? "" : strerrorname_np(found) ?: "0");
	world_drain(world.receiver);
}

/* A change of one field of a request that is good otherwise. */
#define BAD(number, what, ...) do {					\
	struct pagewire_rtp_send send = good;				\
	__VA_ARGS__;							\
	expect(send, number, what);					\
} while (0)

static void check_send_fields(void)
{
	const struct pagewire_rtp_send good = request_file(0, 600, 200);
	struct pagewire_rtp_send send = good;

	ok(!send_errno(&send) && send.sent_packets == 3, "send, as it should be");
	world_drain(world.receiver);
	BAD(EINVAL, "reserved[0]", send.reserved[0] = 1);
	BAD(EINVAL, "reserved[2]", send.reserved[2] = 0x8000);
	BAD(EINVAL, "source", send.source = 2);
	BAD(EINVAL, "header", send.header = 3);
	BAD(EINVAL, "segments", send.segments = PAGEWIRE_RTP_SEGMENTS_MAX + 1);
	BAD(EINVAL, "payload_type", send.payload_type = 128);
	BAD(EINVAL, "length 0", send.length = 0);
	BAD(EINVAL, "offset over loff_t", send.offset = 1ull << 63);
	BAD(EINVAL, "offset and length over loff_t", send.offset = (1ull << 63) - 100);
	BAD(EINVAL, "length that wraps", send.length = ~0ull);
	BAD(EINVAL, "payload_bytes 0", send.payload_bytes = 0);
	BAD(EINVAL, "payload_bytes over the limit",
	    send.payload_bytes = PAGEWIRE_RTP_PAYLOAD_BYTES_MAX + 1);
	BAD(EINVAL, "packets without plan and headers", send.packets = 3);
	BAD(EINVAL, "headers without their kind", send.headers = (uintptr_t)headers);
	BAD(EINVAL, "header_bytes without their kind", send.header_bytes = 12);
	BAD(EINVAL, "file_fd with memory", send.source = PAGEWIRE_RTP_FROM_MEMORY);
}

static void check_send_headers(void)
{
	struct pagewire_rtp_send good = request_file(0, 600, 200);
	struct pagewire_rtp_send send;

	good.header = PAGEWIRE_RTP_HEADER_CALLER;
	good.headers = (uintptr_t)headers;
	good.header_bytes = RTP_BYTES;
	good.packets = 3;
	send = good;
	ok(!send_errno(&send) && send.sent_packets == 3, "send with headers, as it should be");
	world_drain(world.receiver);
	BAD(EINVAL, "no headers", send.headers = 0);
	BAD(EINVAL, "header_bytes 0", send.header_bytes = 0);
	BAD(EINVAL, "header_bytes over the limit",
	    send.header_bytes = PAGEWIRE_RTP_HEADER_BYTES_MAX + 1);
	BAD(EINVAL, "headers for fewer packets", send.packets = 2);
	BAD(EINVAL, "headers for more packets", send.packets = 4);
	BAD(EINVAL, "headers, packets 0", send.packets = 0);
	BAD(EINVAL, "header and payload over a datagram", send.header_bytes = 13;
	    send.payload_bytes = PAGEWIRE_RTP_PAYLOAD_BYTES_MAX; send.packets = 1);
	BAD(EFAULT, "headers nowhere", send.headers = 16);
	BAD(EFAULT, "headers in the kernel", send.headers = ~0ull << 47);
}

static void check_send_plan(void)
{
	struct pagewire_rtp_send good = request_file(0, 600, 0);
	struct pagewire_rtp_send send;

	good.plan = (uintptr_t)plan;
	good.packets = 3;
	send = good;
	ok(!send_errno(&send) && send.sent_packets == 3, "send with a plan, as it should be");
	world_drain(world.receiver);
	BAD(EINVAL, "plan and payload_bytes", send.payload_bytes = 200);
	BAD(EINVAL, "plan, packets 0", send.packets = 0);
	BAD(EINVAL, "packets over the limit", send.packets = PAGEWIRE_RTP_PACKETS_MAX + 1);
	BAD(EINVAL, "plan shorter than length", send.length = 601);
	BAD(EINVAL, "plan longer than length", send.length = 599);
	BAD(EINVAL, "plan with an empty packet", plan[1].payload_bytes = 0; send.length = 400);
	plan[1].payload_bytes = PAGEWIRE_RTP_PAYLOAD_BYTES_MAX + 1;
	BAD(EINVAL, "plan with a packet too large", send.length = 400 + plan[1].payload_bytes);
	plan[1].payload_bytes = 200;
	BAD(EINVAL, "plan with flags unknown", plan[1].flags = 2);
	plan[1].flags = 1;
	BAD(EFAULT, "plan nowhere", send.plan = 16);
	BAD(EFAULT, "plan in the kernel", send.plan = ~0ull << 47);
}

static void check_send_memory(void)
{
	struct pagewire_rtp_send good = request_file(0, 600, 200);
	uint8_t *hole = mmap(NULL, 4 * PAGE_BYTES, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct pagewire_rtp_send send;

	good.source = PAGEWIRE_RTP_FROM_MEMORY;
	good.file_fd = -1;
	good.offset = (uintptr_t)world.map;
	send = good;
	ok(!send_errno(&send) && send.sent_packets == 3, "send from memory, as it should be");
	world_drain(world.receiver);
	BAD(EFAULT, "memory nowhere", send.offset = 0);
	BAD(EFAULT, "memory in the kernel's half", send.offset = 1ull << 62);
	BAD(EINVAL, "memory that wraps", send.offset = ~0ull - 100);
	mprotect(hole, PAGE_BYTES, PROT_NONE);
	BAD(EFAULT, "memory not readable", send.offset = (uintptr_t)hole);
	munmap(hole + 2 * PAGE_BYTES, PAGE_BYTES);
	send = good;
	send.offset = (uintptr_t)hole + PAGE_BYTES;
	send.length = 2 * PAGE_BYTES;
	ok(!send_errno(&send) && send.sent_bytes == PAGE_BYTES / 200 * 200 &&
	   send.sent_packets == PAGE_BYTES / 200,
	   "send from memory with a hole: the whole packets before it");
	world_drain(world.receiver);
	munmap(hole, 2 * PAGE_BYTES);
	munmap(hole + 3 * PAGE_BYTES, PAGE_BYTES);
}

static void check_descriptors(void)
{
	const struct pagewire_rtp_send good = request_file(0, 600, 200);
	int bad, pipes[2];

	BAD(EBADF, "file_fd -1", send.file_fd = -1);
	BAD(EBADF, "file_fd closed", send.file_fd = 1000);
	BAD(EBADF, "socket_fd -1", send.socket_fd = -1);
	BAD(EBADF, "socket_fd closed", send.socket_fd = 1000);
	bad = open(world.path, O_WRONLY | O_CLOEXEC);
	BAD(EBADF, "file open for writing only", send.file_fd = bad);
	close(bad);
	bad = open(world.path, O_PATH | O_CLOEXEC);
	BAD(EBADF, "file opened as a path", send.file_fd = bad);
	close(bad);
	bad = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	BAD(EINVAL, "a folder as file", send.file_fd = bad);
	close(bad);
	bad = open("/dev/null", O_RDONLY | O_CLOEXEC);
	BAD(EINVAL, "a device as file", send.file_fd = bad);
	close(bad);
	if (pipe(pipes))
		fatal("pipe");
	BAD(EINVAL, "a pipe as file", send.file_fd = pipes[0]);
	BAD(ENOTSOCK, "a pipe as socket", send.socket_fd = pipes[1]);
	close(pipes[0]);
	close(pipes[1]);
	BAD(EINVAL, "a socket as file", send.file_fd = world.sender);
	BAD(EINVAL, "the device as file", send.file_fd = world.device);
	BAD(ENOTSOCK, "a file as socket", send.socket_fd = world.file);
	BAD(ENOTSOCK, "the device as socket", send.socket_fd = world.device);
	bad = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	BAD(EPROTOTYPE, "TCP", send.socket_fd = bad);
	close(bad);
	bad = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	BAD(EPROTOTYPE, "a Unix datagram socket", send.socket_fd = bad);
	close(bad);
	bad = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	BAD(EDESTADDRREQ, "not connected", send.socket_fd = bad);
	close(bad);
}

static void check_calls(void)
{
	struct pagewire_rtp_status status;
	struct pagewire_rtp_send send;

	ok(ioctl(world.device, PAGEWIRE_RTP_SEND, 16) && errno == EFAULT, "send nowhere: EFAULT");
	ok(ioctl(world.device, PAGEWIRE_RTP_START, 16) && errno == EFAULT, "start nowhere: EFAULT");
	ok(ioctl(world.device, PAGEWIRE_RTP_SEEK, 16) && errno == EFAULT, "seek nowhere: EFAULT");
	ok(ioctl(world.device, PAGEWIRE_RTP_STATUS, 16) && errno == EFAULT,
	   "status nowhere: EFAULT");
	ok(ioctl(world.device, _IO('P', 0xef)) && errno == ENOTTY, "an unknown call: ENOTTY");
	ok(ioctl(world.device, _IOWR('P', 0xe0, uint32_t), &status) && errno == ENOTTY,
	   "a call of another size: ENOTTY");
	send = request_file(0, 600, 200);
	ok(read(world.device, &status, sizeof(status)) < 0 && errno == EINVAL, "read: EINVAL");
	ok(ioctl(world.file, PAGEWIRE_RTP_SEND, &send) && errno == ENOTTY,
	   "the call on another file: ENOTTY");
}

static void expect_start(struct pagewire_rtp_start start, int number, const char *what)
{
	int found = ioctl(world.device, PAGEWIRE_RTP_START, &start) ? errno : 0;

	ok(found == number, "start, %s: %s", what, strerrorname_np(number) ?: "started");
	if (!found)
		ioctl(world.device, PAGEWIRE_RTP_STOP);
}

#define BAD_START(number, what, ...) do {				\
	struct pagewire_rtp_start start = good;				\
	__VA_ARGS__;							\
	expect_start(start, number, what);				\
} while (0)

static void check_start_fields(void)
{
	struct pagewire_rtp_start good = { .send = request_file(0, 600, 200),
					   .interval_ns = 1000000000, .wake_packets = 1 };
	uint32_t index;

	expect_start(good, 0, "as it should be");
	BAD_START(EINVAL, "reserved", start.reserved = 1);
	BAD_START(EINVAL, "send.reserved", start.send.reserved[1] = 1);
	BAD_START(EINVAL, "interval_ns 0", start.interval_ns = 0);
	BAD_START(EINVAL, "interval_ns below", start.interval_ns--;
		  start.interval_ns = PAGEWIRE_RTP_INTERVAL_NS_MIN - 1);
	BAD_START(EINVAL, "interval_ns over", start.interval_ns = PAGEWIRE_RTP_INTERVAL_NS_MAX + 1);
	BAD_START(EINVAL, "wake_packets 0", start.wake_packets = 0);
	BAD_START(EINVAL, "wake_packets over",
		  start.wake_packets = PAGEWIRE_RTP_WAKE_PACKETS_MAX + 1);
	BAD_START(EINVAL, "start_ns over", start.start_ns = ~0ull);
	BAD_START(EINVAL, "clock_rate without a plan", start.clock_rate = 90000);
	BAD_START(EINVAL, "from memory", start.send.source = PAGEWIRE_RTP_FROM_MEMORY;
		  start.send.file_fd = -1; start.send.offset = (uintptr_t)world.map);
	BAD_START(EINVAL, "the caller's headers", start.send.header = PAGEWIRE_RTP_HEADER_CALLER;
		  start.send.headers = (uintptr_t)headers; start.send.header_bytes = RTP_BYTES;
		  start.send.packets = 3);
	BAD_START(EBADF, "file_fd -1", start.send.file_fd = -1);
	BAD_START(EBADF, "socket_fd -1", start.send.socket_fd = -1);
	good.send.plan = (uintptr_t)plan;
	good.send.packets = 3;
	good.send.payload_bytes = 0;
	good.interval_ns = 0;
	good.clock_rate = 90000;
	expect_start(good, 0, "with a plan, as it should be");
	BAD_START(EINVAL, "interval_ns with a plan", start.interval_ns = 1000000);
	BAD_START(EINVAL, "clock_rate 0 with a plan", start.clock_rate = 0);
	BAD_START(EINVAL, "clock_rate below",
		  start.clock_rate = PAGEWIRE_RTP_CLOCK_RATE_MIN - 1);
	BAD_START(EFAULT, "plan nowhere", start.send.plan = 16);
	for (index = 0; index < 3; index++)
		plan[index].timestamp = index * 0x7fffffff;
	BAD_START(EINVAL, "a plan of 49 days", start.clock_rate = PAGEWIRE_RTP_CLOCK_RATE_MIN);
}

void check_fields(void)
{
	check_send_fields();
	check_send_headers();
	check_send_plan();
	check_send_memory();
	check_descriptors();
	check_calls();
	check_start_fields();
	world_drain(world.receiver);
}
