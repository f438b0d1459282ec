package monitor

import (
	"slices"

	"github.com/headgate-go/headgate/core/inflight"
)

// tracked is how many lanes of outbound calls have a history.
const tracked = 20

// name says whose the cells of a place are.
type name struct {
	lane string // "" = nobody has had the place
	id   uint32 // of the lane's stay in this place
}

// cell is one lane in one sample. It is another lane's where the id is another.
type cell struct {
	id                      uint32
	limit, inflight, queued int32
}

// load is what a lane's place goes by.
func (c cell) load() int64 { return int64(c.inflight) + int64(c.queued) }

// tracking knows which lanes have a history.
type tracking struct {
	names [tracked]name
	ids   uint32
}

// update gives places to lanes and returns their cells. A lane keeps its place while it
// exists. A busy newcomer takes a free place, else that of the least busy lane, if it is
// idle or not half as busy as the newcomer: so lanes of about one size do not push each other
// out in turn, and lose their past by it.
func (t *tracking) update(lanes []inflight.LaneSnapshot) [tracked]cell {
	var cells [tracked]cell
	placed := make(map[string]int, tracked)
	for i, n := range t.names {
		cells[i].id = n.id
		if n.lane != "" {
			placed[n.lane] = i
		}
	}
	var newcomers []inflight.LaneSnapshot
	for _, l := range lanes {
		if i, ok := placed[l.Lane]; ok {
			cells[i] = cellOf(l, t.names[i].id)
		} else if l.Inflight+l.Queued > 0 {
			newcomers = append(newcomers, l)
		}
	}
	slices.SortStableFunc(newcomers, func(a, b inflight.LaneSnapshot) int {
		return (b.Inflight + b.Queued) - (a.Inflight + a.Queued)
	})
	for _, l := range newcomers[:min(tracked, len(newcomers))] {
		if !t.place(l, &cells) {
			break // those that follow are no busier
		}
	}
	return cells
}

// place gives a lane a place, if there is one.
func (t *tracking) place(l inflight.LaneSnapshot, cells *[tracked]cell) bool {
	at := -1
	for i, n := range t.names {
		if n.lane == "" {
			at = i
			break
		}
		if at < 0 || cells[i].load() < cells[at].load() {
			at = i
		}
	}
	if t.names[at].lane != "" && cells[at].load()*2 >= int64(l.Inflight+l.Queued) {
		return false
	}
	t.ids++
	t.names[at] = name{l.Lane, t.ids}
	cells[at] = cellOf(l, t.ids)
	return true
}

func cellOf(l inflight.LaneSnapshot, id uint32) cell {
	return cell{id, int32(l.Limit), int32(l.Inflight), int32(l.Queued)}
}
