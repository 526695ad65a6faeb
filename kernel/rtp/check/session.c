// SPDX-License-Identifier: GPL-2.0
/*
 * Sessions: start, pause, resume, seek, stop, status, poll, limits, the descriptor's end; many at
 * once, each byte compared. And how well packets keep their time (check_paced()).
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

#define MS		1000000ull
#define MANY		20
#define MANY_PACKETS	50

static uint8_t datagram[65536];

static int open_device(void)
{
	int device = open("/dev/pagewire_rtp", O_RDWR | O_CLOEXEC);

	if (device < 0)
		fatal("/dev/pagewire_rtp");
	return device;
}

static struct pagewire_rtp_start start_of(uint32_t packets, uint64_t interval_ns)
{
	return (struct pagewire_rtp_start){
		.send = request_file(1000, packets * 1316ull, 1316),
		.interval_ns = interval_ns,
		.wake_packets = 1,
	};
}

static struct pagewire_rtp_status status_of(int device)
{
	struct pagewire_rtp_status status;

	if (ioctl(device, PAGEWIRE_RTP_STATUS, &status))
		fatal("status");
	return status;
}

static int call(int device, unsigned long command, void *argument)
{
	return ioctl(device, command, argument) ? errno : 0;
}

/* Waits until the session is over or the time has run out; what poll(2) says. */
static short wait_over(int device, int limit_ms)
{
	struct pollfd wait = { .fd = device, .events = POLLIN };

	return poll(&wait, 1, limit_ms) == 1 ? wait.revents : 0;
}

/* Receives @packets in order from @offset; how many were right. */
static uint32_t receive(int receiver, uint32_t packets, uint64_t offset, uint16_t sequence,
			uint32_t timestamp)
{
	struct timeval limit = { .tv_sec = 5 };
	uint32_t index, right = 0;

	setsockopt(receiver, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	for (index = 0; index < packets; index++, sequence++, timestamp += 3600, offset += 1316) {
		ssize_t length = recv(receiver, datagram, sizeof(datagram), 0);

		right += length == RTP_BYTES + 1316 &&
			 datagram[2] * 256 + datagram[3] == sequence &&
			 ((uint32_t)datagram[4] << 24 | datagram[5] << 16 | datagram[6] << 8 |
			  datagram[7]) == timestamp &&
			 !memcmp(datagram + RTP_BYTES, world.bytes + offset, 1316);
	}
	return right;
}

static bool silent(void)
{
	sleep_ns(60 * MS);
	return recv(world.receiver, datagram, 1, MSG_DONTWAIT) < 0;
}

static void check_calls(void)
{
	struct pagewire_rtp_seek seek = { 0 };
	struct pagewire_rtp_start start = start_of(100, 20 * MS);
	int device = open_device();

	ok(status_of(device).state == PAGEWIRE_RTP_NO_SESSION, "status without a session");
	ok(call(device, PAGEWIRE_RTP_PAUSE, 0) == ENOENT, "pause without a session: ENOENT");
	ok(call(device, PAGEWIRE_RTP_RESUME, 0) == ENOENT, "resume without a session: ENOENT");
	ok(call(device, PAGEWIRE_RTP_SEEK, &seek) == ENOENT, "seek without a session: ENOENT");
	ok(call(device, PAGEWIRE_RTP_STOP, 0) == ENOENT, "stop without a session: ENOENT");
	ok(wait_over(device, 0) == 0, "poll without a session");

	start.send.sequence = 65535;
	start.send.timestamp = 0xfffffff0;
	ok(!call(device, PAGEWIRE_RTP_START, &start), "start");
	ok(call(device, PAGEWIRE_RTP_START, &start) == EBUSY, "start again: EBUSY");
	ok(receive(world.receiver, 3, 1000, 65535, 0xfffffff0) == 3,
	   "packets come with no call; sequence and timestamp wrap");
	ok(wait_over(device, 0) == 0, "poll while it runs");
	ok(!call(device, PAGEWIRE_RTP_PAUSE, 0), "pause");
	world_drain(world.receiver);
	ok(silent(), "a paused session is silent");
	ok(status_of(device).state == PAGEWIRE_RTP_PAUSED &&
	   !call(device, PAGEWIRE_RTP_PAUSE, 0), "pause again");
	close(device);
}

static void check_moves(void)
{
	struct pagewire_rtp_seek seek = { .offset = 1000 + 50 * 1316, .timestamp = 777 };
	struct pagewire_rtp_start start = start_of(100, MS);
	struct pagewire_rtp_status status;
	int device = open_device();

	start.start_ns = now_ns() + 3600000 * MS;
	ok(!call(device, PAGEWIRE_RTP_START, &start), "start in an hour");
	ok(silent(), "nothing before its time");
	seek.offset = 999;
	ok(call(device, PAGEWIRE_RTP_SEEK, &seek) == EINVAL, "seek before the range: EINVAL");
	seek.offset = 1000 + 100 * 1316;
	ok(call(device, PAGEWIRE_RTP_SEEK, &seek) == EINVAL, "seek after the range: EINVAL");
	seek.packet = 1;
	seek.offset = 1000;
	ok(call(device, PAGEWIRE_RTP_SEEK, &seek) == EINVAL, "seek to both: EINVAL");
	seek.packet = 0;
	seek.offset = 1000 + 90 * 1316;
	ok(!call(device, PAGEWIRE_RTP_SEEK, &seek), "seek while it runs");
	ok(receive(world.receiver, 10, seek.offset, 0, 777) == 10, "it goes on from there at once");
	ok(wait_over(device, 5000) == (POLLIN | POLLHUP), "poll at the end");
	status = status_of(device);
	ok(status.state == PAGEWIRE_RTP_ENDED && !status.error && status.packets == 10 &&
	   status.bytes == 10 * 1316 && status.sequence == 10 && status.timestamp == 777 + 36000 &&
	   status.offset == 1000 + 100 * 1316, "status at the end");
	ok(call(device, PAGEWIRE_RTP_PAUSE, 0) == EINVAL, "pause at the end: EINVAL");
	ok(call(device, PAGEWIRE_RTP_RESUME, 0) == EINVAL, "resume at the end: EINVAL");
	ok(!call(device, PAGEWIRE_RTP_SEEK, &seek) &&
	   status_of(device).state == PAGEWIRE_RTP_PAUSED, "seek at the end pauses");
	ok(silent(), "and is silent");
	ok(!call(device, PAGEWIRE_RTP_RESUME, 0) &&
	   receive(world.receiver, 10, seek.offset, 10, 777) == 10, "resume sends from there");
	wait_over(device, 5000);
	ok(!call(device, PAGEWIRE_RTP_STOP, 0) &&
	   status_of(device).state == PAGEWIRE_RTP_NO_SESSION, "stop");
	ok(!call(device, PAGEWIRE_RTP_START, &start), "start after stop");
	close(device);
}

/* A plan: the time of each packet is its timestamp's. */
static void check_plan(void)
{
	static struct pagewire_rtp_packet plan[30];
	struct pagewire_rtp_start start = start_of(30, 0);
	struct pagewire_rtp_seek seek = { .packet = 27, .timestamp = 5 };
	int device = open_device(), index;
	uint64_t begin;

	for (index = 0; index < 30; index++) {
		plan[index].payload_bytes = 1316;
		plan[index].timestamp = 0xffffff00 + index / 3 * 1800;	/* 20 ms of 90 kHz */
	}
	start.send.payload_bytes = 0;
	start.send.plan = (uintptr_t)plan;
	start.send.packets = 30;
	start.clock_rate = 90000;
	begin = now_ns();
	ok(!call(device, PAGEWIRE_RTP_START, &start), "start with a plan");
	ok(wait_over(device, 5000) == (POLLIN | POLLHUP), "it ends");
	ok(now_ns() - begin >= 180 * MS, "not before its last timestamp");
	world_drain(world.receiver);
	seek.packet = 30;
	ok(call(device, PAGEWIRE_RTP_SEEK, &seek) == EINVAL, "seek after the plan: EINVAL");
	seek.packet = 27;
	ok(!call(device, PAGEWIRE_RTP_SEEK, &seek) && !call(device, PAGEWIRE_RTP_RESUME, 0) &&
	   receive(world.receiver, 1, 1000 + 27 * 1316, 30, 5) == 1, "seek in a plan");
	wait_over(device, 5000);
	ok(status_of(device).packets == 33, "status counts all packets");
	world_drain(world.receiver);
	close(device);
}

static void check_ends(void)
{
	char path[NAME_BYTES + 8];
	struct pagewire_rtp_start start = start_of(100, MS);
	struct pagewire_rtp_status status;
	int device = open_device(), file, receiver, sender;
	struct sockaddr none = { .sa_family = AF_UNSPEC };

	snprintf(path, sizeof(path), "%s.short", world.path);
	file = world_file(path, 5 * 1316 + 1000);
	start.send.file_fd = file;
	ok(!call(device, PAGEWIRE_RTP_START, &start) &&
	   wait_over(device, 5000) == (POLLIN | POLLHUP | POLLERR), "a file that ends too early");
	status = status_of(device);
	ok(status.state == PAGEWIRE_RTP_FAILED && status.error == ENODATA && status.packets == 5,
	   "fails with ENODATA after its whole packets");
	if (ftruncate(file, 200 * 1316) || unlink(path))
		fatal(path);
	ok(!call(device, PAGEWIRE_RTP_RESUME, 0) &&
	   wait_over(device, 5000) == (POLLIN | POLLHUP) && status_of(device).packets == 100,
	   "resumed after the file has grown it is sent to its end, unlinked too");
	ok(!call(device, PAGEWIRE_RTP_STOP, 0), "stop");
	close(file);

	world_pair(AF_INET, &receiver, &sender);
	start = start_of(1000, MS);
	start.send.socket_fd = sender;
	ok(!call(device, PAGEWIRE_RTP_START, &start), "start to a socket of its own");
	sleep_ns(20 * MS);
	connect(sender, &none, sizeof(none));
	ok(wait_over(device, 5000) == (POLLIN | POLLHUP | POLLERR) &&
	   status_of(device).error == EDESTADDRREQ, "disconnected midway: EDESTADDRREQ");
	call(device, PAGEWIRE_RTP_STOP, 0);
	close(sender);
	close(receiver);

	world_pair(AF_INET, &receiver, &sender);
	start = start_of(20, MS);
	start.send.socket_fd = sender;
	ok(!call(device, PAGEWIRE_RTP_START, &start) && !close(sender) &&
	   receive(receiver, 20, 1000, 0, 0) == 20,
	   "a session keeps the socket that its caller closed");
	wait_over(device, 5000);
	close(receiver);
	call(device, PAGEWIRE_RTP_SEEK, &(struct pagewire_rtp_seek){ .offset = 1000 });
	call(device, PAGEWIRE_RTP_RESUME, 0);
	ok(wait_over(device, 5000) == (POLLIN | POLLHUP | POLLERR) &&
	   status_of(device).error == ECONNREFUSED, "receiver gone midway: ECONNREFUSED");
	close(device);
	world_drain(world.receiver);
}

/* Many at once, from as many files of the device; each packet of each compared. */
static void check_many(void)
{
	int device[MANY], receiver[MANY], sender[MANY], index;
	uint32_t right = 0;

	for (index = 0; index < MANY; index++) {
		struct pagewire_rtp_start start = start_of(MANY_PACKETS, MS + index * 50000);

		device[index] = open_device();
		world_pair(AF_INET, &receiver[index], &sender[index]);
		start.send.socket_fd = sender[index];
		start.send.offset = index * 777;
		start.wake_packets = 1 + index % 5;
		if (call(device[index], PAGEWIRE_RTP_START, &start))
			fatal("one of many sessions");
	}
	for (index = 0; index < MANY; index++) {
		right += receive(receiver[index], MANY_PACKETS, index * 777, 0, 0);
		wait_over(device[index], 5000);
		right -= status_of(device[index]).state != PAGEWIRE_RTP_ENDED;
		close(device[index]);
		close(receiver[index]);
		close(sender[index]);
	}
	ok(right == MANY * MANY_PACKETS, "%d sessions at once: %d packets bad", MANY,
	   MANY * MANY_PACKETS - (int)right);
}

static void check_limits(void)
{
	struct pagewire_rtp_start start = start_of(100, 1000 * MS);
	char former[16];
	int first, second = open_device();

	snprintf(former, sizeof(former), "%ld",
		 number_in(PARAMETERS "sessions_per_user", ""));
	if (!write_file(PARAMETERS "sessions_per_user", "1")) {
		tap_skip("the limits are root's to change", "limits on sessions");
		close(second);
		return;
	}
	first = open_device();
	ok(!call(first, PAGEWIRE_RTP_START, &start), "as many sessions as allowed");
	ok(number_in(PARAMETERS "sessions", "") == 1, "sessions are counted");
	ok(call(second, PAGEWIRE_RTP_START, &start) == EDQUOT, "one more of a user: EDQUOT");
	write_file(PARAMETERS "sessions_per_user", former);
	write_file(PARAMETERS "sessions_total", "1");
	ok(call(second, PAGEWIRE_RTP_START, &start) == EUSERS, "one more of all: EUSERS");
	write_file(PARAMETERS "sessions_total", "512");
	close(first);
	ok(!call(second, PAGEWIRE_RTP_START, &start), "one that ended makes room");
	close(second);
	ok(number_in(PARAMETERS "sessions", "") == 0, "none is left");
}

/* A process killed while its session streams: the descriptor ends, and so does the session. */
static void check_killed(void)
{
	int device, status;
	pid_t child;

	world_drain(world.receiver);
	child = fork();
	if (!child) {
		struct pagewire_rtp_start start = start_of(4000, MS);

		device = open_device();
		if (call(device, PAGEWIRE_RTP_START, &start))
			_exit(1);
		for (;;)
			pause();
	}
	ok(receive(world.receiver, 10, 1000, 0, 0) == 10, "a session of another process");
	kill(child, SIGKILL);
	waitpid(child, &status, 0);
	world_drain(world.receiver);
	ok(silent() && number_in(PARAMETERS "sessions", "") == 0, "ends when that is killed");
}

void check_sessions(void)
{
	world_drain(world.receiver);
	check_calls();
	world_drain(world.receiver);
	check_moves();
	check_plan();
	check_ends();
	check_many();
	check_limits();
	check_killed();
	world_drain(world.receiver);
}
