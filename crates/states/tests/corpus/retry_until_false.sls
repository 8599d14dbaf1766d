one:
  test.fail_without_changes:
    - retry:
        attempts: 3
        interval: 0
        until: False
