s/report show 01a1e1f7-c3/report show "$(newest_report)"/
