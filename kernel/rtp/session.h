/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A session: what session.c (calls, lifetime), pacing.c (timer and worker) and user.c (limits)
 * share.
 */
#ifndef PAGEWIRE_RTP_SESSION_H
#define PAGEWIRE_RTP_SESSION_H

#include <linux/cred.h>
#include <linux/hrtimer.h>
#include <linux/ktime.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

#include "engine.h"

/**
 * struct pwr_place - a packet of a session: where it is, and when it is due
 * @offset: of its payload in the file
 * @bytes_left: payload from here to the end of the session
 * @packet: its index in the plan; 0 without
 * @ticks: its media time by the plan, in ticks of the clock; may step back
 * @ticks_max: the greatest media time up to here: what it is due by
 * @due: when
 */
struct pwr_place {
	u64 offset;
	u64 bytes_left;
	u32 packet;
	s64 ticks;
	s64 ticks_max;
	ktime_t due;
};

struct mem_cgroup;
struct pwr_user;

/**
 * struct pwr_turn - what a worker had run when it began something for a session
 * @began: when
 * @ran_ns: time that it ran, as of its last switch
 * @switches: to others and back
 */
struct pwr_turn {
	ktime_t began;
	u64 ran_ns;
	unsigned long switches;
};

/**
 * struct pwr_session - what an open file of the device has
 * @lock: of all that follows; held while packets are sent
 * @timer: to the next packet; queues one of the two that follow
 * @work_high: sends what is due, at high priority
 * @work_normal: the same, at normal priority
 * @work_close: ends what close(2) could not
 * @over: who polls for the end
 * @idle: who waits for the end of a turn
 * @beyond: the user has had its share of high priority
 * @closing: the file is closed; nothing more is sent
 * @state: PAGEWIRE_RTP_...; all below is valid unless it is PAGEWIRE_RTP_NO_SESSION
 * @error: errno, when failed
 * @user: who is charged
 * @cred: of who started it
 * @memory: control group that what is allocated is charged to, of who started it; or NULL
 * @file: what is sent
 * @socket: where to
 * @plan: checked copy, or NULL
 * @request: as started, but sequence and timestamp are those of the next packet; with a plan the
 *	timestamp is what is added to the plan's
 * @interval_ns: without a plan
 * @clock_rate: with one
 * @wake_packets: packets that may be sent with the first that is due
 * @next: the next packet
 * @base: time that @base_ticks of media time stands for
 * @base_ticks: media time, with a plan
 * @status: counters, the rest of it is not kept up
 */
struct pwr_session {
	struct mutex lock;	/* of all that follows, see above */
	struct hrtimer timer;
	struct work_struct work_high;
	struct work_struct work_normal;
	struct work_struct work_close;
	wait_queue_head_t over;
	wait_queue_head_t idle;
	bool beyond;
	bool closing;
	u32 state;
	int error;
	struct pwr_user *user;
	const struct cred *cred;
	struct mem_cgroup *memory;
	struct file *file;
	struct socket *socket;
	struct pagewire_rtp_packet *plan;
	struct pagewire_rtp_send request;
	u64 interval_ns;
	u32 clock_rate;
	u16 wake_packets;
	struct pwr_place next;
	ktime_t base;
	s64 base_ticks;
	struct pagewire_rtp_status status;
};

/* pacing.c */
void pwr_pacing_open(struct pwr_session *session);
void pwr_pacing_close(struct pwr_session *session);
void pwr_pacing_close_later(struct pwr_session *session);
unsigned int pwr_pacing_sessions_max(void);
void pwr_pacing_run(struct pwr_session *session, ktime_t at);
int pwr_plan_span_check(const struct pagewire_rtp_packet *plan, u32 packets, u32 clock_rate);
void pwr_place_advance(const struct pwr_session *session, struct pwr_place *place);

/* session.c */
void pwr_session_close_later(struct pwr_session *session);

/* user.c */
struct pwr_user *pwr_user_take(void);
void pwr_user_put(struct pwr_user *user);
ktime_t pwr_user_waits(struct pwr_user *user, ktime_t now);
void pwr_turn_begin(struct pwr_turn *turn, ktime_t now);
bool pwr_user_beyond(const struct pwr_user *user);
void pwr_user_charge(struct pwr_user *user, const struct pwr_turn *turn);

#endif
