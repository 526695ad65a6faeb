// SPDX-License-Identifier: GPL-2.0
/*
 * Random calls: every field of every call random, near its limits or good, in random order, from
 * files of all kinds, one of which is cut and grown meanwhile; a bounded number of them, or as many
 * as fit in a time, from a seed that is printed. Nothing is expected but that the kernel stays well
 * and that what a call says it sent is no more than it was asked for.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "check.h"

#define DEVICES		4
#define CUT_BYTES	200000	/* of the file that is cut, at most */
#define PAGE		4096
#define NOTE_EVERY_NS	60000000000ull
#define CALL_US_MAX	200000	/* then a signal: one call may be of millions of packets */
#define SLOW_CALL_NS	2000000000ull

static uint64_t state, longest_ns;

/* The known file twice, as page cache and by O_DIRECT; files of the kernel's; one that is cut. */
static int files[5], files_count, cut_file;
static char cut_path[NAME_BYTES + 8];
/* Memory that ends: addresses near its end make headers and plans unreadable midway. */
static uint8_t *last_page;

static uint64_t any(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state * 0x2545f4914f6cdd1d;
}

static uint64_t below(uint64_t limit)
{
	return any() % limit;
}

/* A number of any size: small, at the end of a range, near a power of two, or of all bits. */
static uint64_t odd_number(void)
{
	switch (below(4)) {
	case 0:
		return below(70000);
	case 1:
		return (1ull << below(64)) - below(3) + 1;
	case 2:
		return 0 - below(3);
	default:
		return any();
	}
}

static int any_descriptor(const int *good, int count)
{
	switch (below(8)) {
	case 0:
		return (int)below(40) - 2;
	case 1:
		return (int)odd_number();
	default:
		return good[below(count)];
	}
}

static uint64_t any_address(void)
{
	switch (below(8)) {
	case 0:
		return 0;
	case 1:
		return odd_number();
	case 2:
	case 3:
		return (uintptr_t)last_page + PAGE - below(600);
	case 4:
		return (uintptr_t)world.map + world.file_bytes - below(9000);
	default:
		return (uintptr_t)world.map + below(world.file_bytes);
	}
}

static struct pagewire_rtp_send any_send(void)
{
	static struct pagewire_rtp_packet plan[64];
	const int sockets[] = { world.sender };
	struct pagewire_rtp_send send = request_file(below(world.file_bytes), 1 + below(100000),
						     1 + below(3000));
	uint32_t index;

	send.segments = below(9) * below(9);
	send.header = below(3);
	if (send.header == PAGEWIRE_RTP_HEADER_CALLER) {
		send.headers = any_address();
		send.header_bytes = 1 + below(128);
		send.packets = (send.length + send.payload_bytes - 1) / send.payload_bytes;
	}
	if (!below(2)) {
		send.packets = 1 + below(64);
		send.payload_bytes = 0;
		send.length = 0;
		for (index = 0; index < send.packets; index++) {
			plan[index].payload_bytes = 1 + below(below(9) ? 1400 : 65000);
			plan[index].flags = below(2);
			plan[index].timestamp = below(9) ? index * 90 : odd_number();
			send.length += plan[index].payload_bytes;
		}
		send.plan = (uintptr_t)plan;
	}
	if (!below(3)) {
		send.source = PAGEWIRE_RTP_FROM_MEMORY;
		send.file_fd = -1;
		send.offset = any_address();
	} else {
		send.file_fd = any_descriptor(files, files_count);
		if (send.file_fd != world.file && below(4))
			send.offset = below(3 * PAGE);
	}
	send.socket_fd = any_descriptor(sockets, 1);
	/* Now and then bytes anywhere. */
	while (!below(3))
		((uint8_t *)&send)[below(sizeof(send))] = odd_number();
	if (!below(4))
		send.length = odd_number();
	return send;
}

static void any_start(int device)
{
	struct pagewire_rtp_start start = {
		.send = any_send(),
		.interval_ns = 1000 + below(100000),
		.wake_packets = 1 + below(64),
	};

	if (start.send.plan) {
		start.interval_ns = 0;
		start.clock_rate = 1000 + below(1000000);
	}
	if (!below(4))
		start.start_ns = now_ns() + below(1000000);
	while (!below(4))
		((uint8_t *)&start)[below(sizeof(start))] = odd_number();
	ioctl(device, PAGEWIRE_RTP_START, &start);
}

static void any_seek(int device)
{
	struct pagewire_rtp_seek seek = { .offset = below(world.file_bytes), .timestamp = any() };

	if (!below(2)) {
		seek.offset = 0;
		seek.packet = below(70);
	}
	if (!below(4))
		seek.offset = odd_number();
	ioctl(device, PAGEWIRE_RTP_SEEK, &seek);
}

/* One call; false when it claims what cannot be. */
static bool one_call(int device)
{
	struct pagewire_rtp_status status;
	struct pagewire_rtp_send send;

	switch (below(13)) {
	case 12:
		return !ftruncate(cut_file, below(CUT_BYTES)) || errno == EINTR;
	case 0:
	case 1:
		any_start(device);
		return true;
	case 2:
		any_seek(device);
		return true;
	case 3:
		ioctl(device, PAGEWIRE_RTP_PAUSE);
		return true;
	case 4:
		ioctl(device, PAGEWIRE_RTP_RESUME);
		return true;
	case 5:
		ioctl(device, PAGEWIRE_RTP_STOP);
		return true;
	case 6:
		memset(&status, 0xff, sizeof(status));
		if (ioctl(device, PAGEWIRE_RTP_STATUS, &status))
			return errno == EINTR;
		return status.state <= PAGEWIRE_RTP_FAILED;
	case 7:
		ioctl(device, odd_number(), any_address());
		return true;
	case 8:
		ioctl(device, _IOC(below(4), 'P', 0xe0 + below(9), below(200)), any_address());
		return true;
	default:
		send = any_send();
		return ioctl(device, PAGEWIRE_RTP_SEND, &send) ||
		       (send.sent_bytes <= send.length && send.sent_packets <= send.sent_bytes);
	}
}

/* Only to have been called: what it ends is the call. */
static void on_signal(int number)
{
	(void)number;
}

static void signals(long every_us)
{
	struct itimerval timer = { { 0, every_us }, { 0, every_us } };
	struct sigaction action = { .sa_handler = on_signal };

	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &timer, NULL);
}

static void add_file(int file)
{
	if (file >= 0)
		files[files_count++] = file;
}

static void sources_open(void)
{
	int direct = open(world.path, O_RDONLY | O_CLOEXEC);

	snprintf(cut_path, sizeof(cut_path), "%s.fuzz", world.path);
	cut_file = world_file(cut_path, CUT_BYTES);
	files_count = 0;
	add_file(world.file);
	add_file(cut_file);
	if (direct >= 0 && fcntl(direct, F_SETFL, O_DIRECT)) {
		close(direct);
		direct = -1;
	}
	add_file(direct);
	add_file(open("/proc/filesystems", O_RDONLY | O_CLOEXEC));
	add_file(open(PARAMETERS "sessions_total", O_RDONLY | O_CLOEXEC));
	last_page = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			 0);
	if (last_page == MAP_FAILED || mprotect(last_page + PAGE, PAGE, PROT_NONE))
		fatal("a page that cannot be read");
}

static void sources_close(void)
{
	munmap(last_page, 2 * PAGE);
	unlink(cut_path);
	while (--files_count > 0)
		close(files[files_count]);
}

static void note_slow(const char *what, long round, uint64_t began)
{
	uint64_t took = now_ns() - began;

	if (took > longest_ns)
		longest_ns = took;
	if (took > SLOW_CALL_NS)
		tap_note("round %ld: %s took %llu ms", round, what,
			 (unsigned long long)took / 1000000);
}

/* @rounds calls, or with @seconds as many as fit in them. */
void check_fuzz(uint64_t seed, long rounds, unsigned int seconds)
{
	uint64_t began = now_ns(), end = began + seconds * 1000000000ull, noted = began;
	uint64_t called;
	int device[DEVICES], index;
	long round, wrong = 0;

	state = seed * 2 + 1;
	sources_open();
	signals(CALL_US_MAX);
	for (index = 0; index < DEVICES; index++)
		device[index] = open("/dev/pagewire_rtp", O_RDWR | O_CLOEXEC);
	/* A random descriptor may be one of ours; a receiver that blocks may not. */
	for (round = 0; seconds ? now_ns() < end : round < rounds; round++) {
		index = below(DEVICES);
		if (device[index] < 0)
			fatal("/dev/pagewire_rtp");
		called = now_ns();
		if (!below(100)) {
			close(device[index]);
			note_slow("close()", round, called);
			device[index] = open("/dev/pagewire_rtp", O_RDWR | O_CLOEXEC);
		} else {
			wrong += !one_call(device[index]);
			note_slow("the call", round, called);
		}
		if (!(round % 16)) {
			called = now_ns();
			world_drain(world.receiver);
			note_slow("emptying the receiver", round, called);
		}
		if (now_ns() - noted > NOTE_EVERY_NS) {
			noted = now_ns();
			tap_note("%ld random calls in %llu s", round + 1,
				 (unsigned long long)(noted - began) / 1000000000);
		}
	}
	tap_note("the longest took %llu ms", (unsigned long long)longest_ns / 1000000);
	for (index = 0; index < DEVICES; index++)
		close(device[index]);
	signals(0);
	sources_close();
	world_drain(world.receiver);
	ok(!wrong, "%ld random calls, seed %llu: %ld with impossible results", round,
	   (unsigned long long)seed, wrong);
}
