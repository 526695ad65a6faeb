// SPDX-License-Identifier: GPL-2.0
/*
 * Nothing is left behind: sockets, sessions and memory are back where they were; kmemleak finds
 * nothing where the kernel has it; the module cannot be unloaded under a session and can after.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "check.h"

#define KMEMLEAK	"/sys/kernel/debug/kmemleak"
#define PAYLOAD_BYTES	1316
#define FILE_BYTES	(PACKETS * PAYLOAD_BYTES)
#define ROUNDS		80	/* 400 MiB; what is left open 25 MiB */
#define SLACK_KIB	16384	/* the machine's own to and fro */

static long sockets;

void check_leaks_begin(void)
{
	sockets = number_in("/proc/net/sockstat", "UDP: inuse");
}

/* A file of FILE_BYTES with other pages each time. */
static int fresh_file(const char *path)
{
	int file = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	if (file < 0 || write(file, world.bytes, FILE_BYTES) != FILE_BYTES)
		fatal(path);
	return file;
}

/*
 * Pages: sends many files one after the other, each of pages of its own. What is left of the
 * machine's memory then tells whether pages were kept, all of them or those of packets that a
 * round of 16 pages leaves open.
 */
static void check_pages(uint8_t source, uint8_t segments)
{
	struct pagewire_rtp_send good = request_file(0, FILE_BYTES, PAYLOAD_BYTES);
	char path[NAME_BYTES + 8];
	long before, after;
	int round;

	snprintf(path, sizeof(path), "%s.pages", world.path);
	good.source = source;
	good.segments = segments;
	write_file("/proc/sys/vm/drop_caches", "3");
	before = number_in("/proc/meminfo", "MemFree:");
	for (round = 0; round < ROUNDS; round++) {
		struct pagewire_rtp_send send = good;
		int file = fresh_file(path);
		void *map = mmap(NULL, FILE_BYTES, PROT_READ, MAP_SHARED, file, 0);

		send.file_fd = source == PAGEWIRE_RTP_FROM_FILE ? file : -1;
		if (source == PAGEWIRE_RTP_FROM_MEMORY)
			send.offset = (uintptr_t)map;
		while (send.length && !send_errno(&send) && send.sent_bytes) {
			send.offset += send.sent_bytes;
			send.length -= send.sent_bytes;
			world_drain(world.receiver);
		}
		munmap(map, FILE_BYTES);
		close(file);
		unlink(path);
	}
	write_file("/proc/sys/vm/drop_caches", "3");
	after = number_in("/proc/meminfo", "MemFree:");
	if (!ok(before - after < SLACK_KIB,
		"pages of %d files are free again, from %s, segments %u", ROUNDS,
		source ? "memory" : "files", segments))
		tap_note("MemFree %ld KiB before, %ld after", before, after);
}

static void check_kmemleak(void)
{
	static char text[16384];
	ssize_t length;
	int file;

	if (access(KMEMLEAK, R_OK)) {
		tap_skip("no kmemleak in this kernel", "kmemleak");
		return;
	}
	/* What was freed a moment ago may be taken for lost; it asks for some age and two scans. */
	sleep_ns(6000000000ull);
	write_file(KMEMLEAK, "scan");
	sleep_ns(100000000);
	write_file(KMEMLEAK, "scan");
	file = open(KMEMLEAK, O_RDONLY | O_CLOEXEC);
	length = read(file, text, sizeof(text) - 1);
	close(file);
	text[length > 0 ? length : 0] = 0;
	if (!ok(!strstr(text, "pagewire_rtp"), "kmemleak finds nothing of the module's"))
		tap_note("%s", text);
}

void check_leaks_end(void)
{
	check_pages(PAGEWIRE_RTP_FROM_FILE, 1);
	check_pages(PAGEWIRE_RTP_FROM_FILE, 7);
	check_pages(PAGEWIRE_RTP_FROM_MEMORY, 1);
	ok(number_in("/proc/net/sockstat", "UDP: inuse") == sockets, "sockets are closed");
	ok(number_in("/sys/module/pagewire_rtp/parameters/sessions", "") <= 0,
	   "no session is left");
	check_kmemleak();
}

/* Unloading: refused while a session streams; then, on a machine of our own, done. */
void check_unload(void)
{
	struct pagewire_rtp_start start = { .send = request_file(0, 1316000, 1316),
					    .interval_ns = 1000000, .wake_packets = 1 };

	if (!world.root || access("/sys/module/pagewire_rtp/refcnt", R_OK)) {
		tap_skip("needs root and the engine as a module", "unloading");
		return;
	}
	if (ioctl(world.device, PAGEWIRE_RTP_START, &start))
		fatal("a session");
	ok(syscall(SYS_delete_module, "pagewire_rtp", O_NONBLOCK) && errno == EWOULDBLOCK,
	   "unloading while a session streams is refused");
	ioctl(world.device, PAGEWIRE_RTP_STOP);
	ok(syscall(SYS_delete_module, "pagewire_rtp", O_NONBLOCK) && errno == EWOULDBLOCK,
	   "and while the device is open");
	close(world.device);
	world.device = -1;
	world_drain(world.receiver);
	if (getpid() != 1) {
		tap_skip("the module is left as it was", "unloading when nobody uses it");
		return;
	}
	ok(!syscall(SYS_delete_module, "pagewire_rtp", O_NONBLOCK),
	   "it is unloaded when nobody uses it");
	ok(access("/dev/pagewire_rtp", F_OK), "and its device is gone");
}
