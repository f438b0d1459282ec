// Package promgate shows the state of a Headgate's gates as Prometheus metrics.
//
//	metrics, err := promgate.New(hg)
//	stop, err := metrics.Register(prometheus.DefaultRegisterer)
//
// Nothing is counted here: each scrape reads what the gates count anyway, so a gauge can
// not drift from what it is about, and no request is slower for it. A scrape reads memory
// only. It holds a gate's lock for as long as the gate's Snapshot does, some dozen loads a
// lane or tenant that waits, and none while metrics are made or written.
//
// # Names
//
// A name is namespace, subsystem and what it is about: headgate_outbound_inflight. See
// [WithNamespace] and [WithSubsystems]. All counters end in _total, times are in seconds,
// sizes in bytes. What is not known is absent, never 0.
//
//	admission_info{mode,budget_source}            1
//	admission_inflight_bytes                      charged, of
//	admission_max_inflight_bytes                  the budget
//	admission_max_body_bytes                      effective cap for one body
//	admission_inflight{weight}                    requests; weight: light, heavy
//	admission_max_heavy_inflight                  absent where not capped
//	admission_exempt_inflight
//	admission_decoded_bytes                       account of decoded bodies
//	admission_queue_depth{weight}                 requests that wait
//	admission_waiting_bytes                       what they ask for
//	admission_queued_bytes                        what they hold in memory
//	admission_oldest_wait_seconds
//	admission_oldest_heavy_seconds
//	admission_typical_hold_seconds{weight}        median
//	admission_admitted_total
//	admission_queued_total
//	admission_sheds_total{reason}
//	admission_canceled_total                      clients that left
//	admission_shadow_total{outcome}               outcome: admit, queue, refuse
//
//	pressure_info{ceiling_source}                 1
//	pressure_severity                             0 normal, 1 high, 2 critical
//	pressure_ready
//	pressure_ceiling_bytes
//	pressure_signal{signal}                       ratio, percent (psi) or events (oom)
//	pressure_signal_threshold{signal,severity}    severity: high, critical, recovered
//	pressure_sample_age_seconds
//	pressure_samples_total
//	pressure_forced_collections_total
//
//	lanes_info{mode,algorithm,virtual_lanes}      1
//	lanes_limit                                   in cost units, like all of the next
//	lanes_min_limit, lanes_max_limit
//	lanes_inflight_cost
//	lanes_queued_cost
//	lanes_measuring                               1 while the limit is in a dip
//	lanes_inflight                                requests
//	lanes_exempt_inflight
//	lanes_queue_depth
//	lanes_oldest_wait_seconds
//	lanes_tenant_lanes                            lanes in the table
//	lanes_utilization_ratio
//	lanes_gradient                                latency above the usual one
//	lanes_latency_seconds{window}                 window: short, long
//	lanes_admitted_total
//	lanes_queued_total
//	lanes_sheds_total{reason}
//	lanes_canceled_total
//	lanes_shadow_total{outcome}
//	lanes_probes_total{outcome}                   outcome: admit, skip, would_skip, error
//	lanes_overflow_total
//	lanes_key_missing_total
//	lanes_cost_errors_total
//
//	outbound_info{mode}                           1
//	outbound_enabled
//	outbound_limit{lane}                          0 = none
//	outbound_reserve{lane}
//	outbound_inflight{lane}
//	outbound_queue_depth{lane,priority}           priority: interactive, default, bulk
//	outbound_oldest_wait_seconds{lane}
//	outbound_paused_seconds{lane}
//	outbound_saturated{lane}
//	outbound_verdict{lane,verdict}                1 for the one that holds
//	outbound_queue_wait_seconds{lane,priority}    histogram
//	outbound_hold_seconds{lane}                   histogram
//	outbound_queue_timeouts_total{lane}
//	outbound_granted_total{lane}
//	outbound_retries_total{lane}
//	outbound_canceled_total{lane}
//	outbound_repeat_sheds_total{lane}             refused again, not in the sheds
//	outbound_sheds_total{reason}                  of all lanes
//	outbound_shadow_total{outcome}                of all lanes
//
//	scrape_failures_total{gate}                   has no subsystem; see [Collector.Collect]
//
// # Bounds
//
// Tenants, methods, routes and paths are no labels. Reasons are those that the gate has,
// and all are there from the start. The first 50 lanes have series of their own, until
// they are evicted; the series are gone then. All other lanes share lane="other", whose
// gauges are sums, or the largest, over them. A lane never moves from the one to the
// other, and no counter falls: what an evicted lane has counted after its last scrape is
// in "other" too. A lane that comes back after its eviction begins at 0, as after a
// restart.
//
// # Histograms
//
// queue_wait_seconds has each call that was granted a slot, 0 if at once, or has timed
// out. hold_seconds has each call that waited. Of the others one in 64 is measured and
// stands for 64, so that its _count is that of the calls that have ended, less what waits
// for its next measure: at most 63 for each of 64 records and each class. Wait and
// hold are never in one number.
package promgate
