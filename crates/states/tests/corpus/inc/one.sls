inc one: test.succeed_with_changes
inc two: test.nop
