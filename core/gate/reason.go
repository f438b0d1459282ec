package gate

// Reason is why a request was refused. It is an error, so that
// errors.Is(err, gate.QueueTimeout) answers for any error of a gate.
type Reason string

// The reasons.
const (
	PayloadTooLarge   Reason = "payload_too_large"   // over the cap for one body
	BodyExceedsBudget Reason = "body_exceeds_budget" // larger than the whole budget: can never fit
	CostExceedsLimit  Reason = "cost_exceeds_limit"  // dearer than the limit can ever be

	AdmissionBusy    Reason = "admission_busy"    // no room for bytes and none to wait in
	QueueFull        Reason = "queue_full"        // the queue is full
	TenantQueueFull  Reason = "tenant_queue_full" // the caller's own queue is full
	QueueTimeout     Reason = "queue_timeout"     // waited as long as the gate allows
	Deadline         Reason = "deadline"          // the caller's deadline leaves no time
	Displaced        Reason = "displaced"         // gave its place in a full queue to someone else
	NoTarget         Reason = "no_target"         // every target of a fan-out was skipped
	ResourcePressure Reason = "resource_pressure" // the process is close to its memory limit
	ShuttingDown     Reason = "shutting_down"     // the gate is closed

	SlowBody Reason = "slow_body" // the body arrived too slowly
	MaxHold  Reason = "max_hold"  // held longer than allowed: work was cut
	SlotLost Reason = "slot_lost" // a shared slot was lost: work was cut

	// Canceled means that the caller left. It is not a shed: nothing is
	// written and it is counted apart.
	Canceled Reason = "canceled"
)

// Error returns the reason itself.
func (r Reason) Error() string { return string(r) }

// status maps a reason to its HTTP status and says whether a retry can help.
func (r Reason) status() (code int, retry bool) {
	switch r {
	case PayloadTooLarge, BodyExceedsBudget, CostExceedsLimit:
		return 413, false
	case TenantQueueFull:
		return 429, true
	case SlowBody:
		return 408, false
	case Canceled:
		return 499, false
	default:
		return 503, true
	}
}
