one:
  test.succeed_with_changes:
    - onlyif: True
two:
  test.succeed_with_changes:
    - unless: False
