one:
  cmd.run:
    - name: 'true'
    - no_such_argument: 5
