// SPDX-License-Identifier: GPL-2.0
/*
 * Timing of a session: 5 Mb/s for some seconds, each packet's arrival at a receiver on
 * the loopback (SO_TIMESTAMPNS, the stack's own clock reading) against its time. The figures are
 * printed; claimed is only that all packets came, in order, and none before its time.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

#define PAYLOAD		1316
#define RATE		5000000		/* bits of payload a second */
#define INTERVAL_NS	(PAYLOAD * 8 * 1000000000ull / RATE)
#define START_IN_NS	50000000
#define WITHIN_NS	2000000
#define EARLY_NS	20000		/* of the two clocks against one another */
#define READINGS	32

/*
 * What CLOCK_REALTIME is ahead of CLOCK_MONOTONIC: of many readings the one that took the least,
 * for between the two clocks of any of them a busy host may do something else.
 */
static int64_t clocks_ns(void)
{
	uint64_t before, took, least = UINT64_MAX;
	struct timespec wall;
	int64_t ahead = 0;
	int reading;

	for (reading = 0; reading < READINGS; reading++) {
		before = now_ns();
		clock_gettime(CLOCK_REALTIME, &wall);
		took = now_ns() - before;
		if (took >= least)
			continue;
		least = took;
		ahead = wall.tv_sec * 1000000000ll + wall.tv_nsec - (int64_t)(before + took / 2);
	}
	return ahead;
}

/* Receives a packet; its arrival on CLOCK_REALTIME, or -1 when it is not number @index. */
static int64_t arrival_ns(int receiver, uint32_t index)
{
	uint8_t header[RTP_BYTES], control[256];
	struct iovec part = { header, sizeof(header) };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control,
				  .msg_controllen = sizeof(control) };
	struct cmsghdr *item;
	struct timespec at;

	if (recvmsg(receiver, &message, 0) != RTP_BYTES ||
	    header[2] * 256 + header[3] != (uint16_t)index)
		return -1;
	for (item = CMSG_FIRSTHDR(&message); item; item = CMSG_NXTHDR(&message, item)) {
		if (item->cmsg_level == SOL_SOCKET && item->cmsg_type == SCM_TIMESTAMPNS) {
			memcpy(&at, CMSG_DATA(item), sizeof(at));
			return at.tv_sec * 1000000000ll + at.tv_nsec;
		}
	}
	return -1;
}

static int by_size(const void *one, const void *other)
{
	int64_t a = *(const int64_t *)one, b = *(const int64_t *)other;

	return a < b ? -1 : a > b;
}

void check_paced(unsigned int seconds)
{
	uint32_t packets = seconds * 1000000000ull / INTERVAL_NS, index, within = 0;
	struct timeval limit = { .tv_sec = 5 };
	struct pagewire_rtp_start start = { .interval_ns = INTERVAL_NS, .wake_packets = 1 };
	int64_t *late_ns = malloc(packets * sizeof(*late_ns)), ahead_ns;
	struct pagewire_rtp_status status;
	char path[NAME_BYTES + 8];
	int on = 1, file;

	snprintf(path, sizeof(path), "%s.paced", world.path);
	file = world_file(path, (size_t)packets * PAYLOAD);
	unlink(path);
	start.send = request_file(0, (uint64_t)packets * PAYLOAD, PAYLOAD);
	start.send.file_fd = file;
	setsockopt(world.receiver, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof(on));
	setsockopt(world.receiver, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	start.start_ns = now_ns() + START_IN_NS;
	ahead_ns = clocks_ns();
	if (ioctl(world.device, PAGEWIRE_RTP_START, &start))
		fatal("a paced session");
	for (index = 0; index < packets; index++) {
		int64_t at = arrival_ns(world.receiver, index);

		if (at < 0)
			break;
		late_ns[index] = at - ahead_ns - (int64_t)(start.start_ns + index * INTERVAL_NS);
		within += late_ns[index] <= WITHIN_NS;
	}
	if (ok(index == packets, "paced: %u of %u packets in order, %u s at %.1f Mb/s", index,
	       packets, seconds, RATE / 1e6) && packets) {
		qsort(late_ns, packets, sizeof(*late_ns), by_size);
		ok(late_ns[0] >= -EARLY_NS, "paced: none before its time");
		tap_note("paced: p50 %.3f ms, p99 %.3f ms, max %.3f ms late; %.3f %% within 2 ms",
			 late_ns[packets / 2] / 1e6, late_ns[packets * 99ull / 100] / 1e6,
			 late_ns[packets - 1] / 1e6, within * 100.0 / packets);
	}
	ioctl(world.device, PAGEWIRE_RTP_STATUS, &status);
	tap_note("paced: late %llu, greatest lateness %.3f ms, retries %llu by the engine's count",
		 (unsigned long long)status.late_packets, status.lateness_ns_max / 1e6,
		 (unsigned long long)status.retries);
	ioctl(world.device, PAGEWIRE_RTP_STOP);
	close(file);
	free(late_ns);
}
