one:
  test.succeed_with_changes:
    - onlyif: 'true'
    - unless: 'true'
two:
  test.succeed_with_changes:
    - onlyif: 'true'
    - unless: 'false'
